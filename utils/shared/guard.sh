# Sourced by parse_options.sh, nnet_job.sh and recipe.sh, and by setup_venv.sh, which sets $python: what the script starts ends when it does,
# however that comes: Ctrl-C, SIGTERM, SIGKILL, a closed terminal. The outermost script has a guard for it (pykaldist/jobs), whose mark is
# in the environment of all that is started. Ctrl-C ends each script with status 130; the outermost one says so. Once: a script that has a
# guard, or is called by one that has, gets no second.
__interrupted() {
  [ "${PYKALDIST_STARTED_BY%%-*}" != $$ ] || echo "${0##*/}: interrupted." >&2
  exit 130
}
if [ -z "${PYKALDIST_STARTED_BY:-}" ] && [ -n "${PYKALDIST_ROOT:-}" ]; then
  export PYKALDIST_STARTED_BY=$$-$RANDOM$RANDOM
  . "$PYKALDIST_ROOT/utils/shared/jobs_command.sh"
  # In a subshell: it is no child of the script, which may `wait` for all that it has.
  ("${jobs_command[@]}" guard $$ "$PYKALDIST_STARTED_BY" $PPID </dev/null >/dev/null 2>&1 &)
fi
trap __interrupted INT  # bash itself goes on where the command that it waits for has handled Ctrl-C
