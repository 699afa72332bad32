# Sourced by parse_options.sh and nnet_job.sh when a script's options are read: says at once what the script does, its own second line.
# Once: what the script calls is told by PYKALDIST_TOLD that it has been said. On a terminal a recipe (PYKALDIST_TOLD=recipe) shows the
# steps' lines too, until a bar or what came out takes their place.
if [ -z "${PYKALDIST_TOLD:-}" ] || { [ "$PYKALDIST_TOLD" = recipe ] && [ -t 2 ]; }; then
  __script=$0
  [ -r "$__script" ] || __script=$OLDPWD/$0  # a recipe has gone to its own folder since
  { read -r __line && read -r __line; } < "$__script"
  case $__line in "# "*Copyright*) __line="" ;; "# "*) __line="${0##*/}: ${__line#\# }" ;; *) __line="" ;; esac  # a foreign script may say nothing
  if [ -z "$__line" ]; then :; elif [ -z "${PYKALDIST_TOLD:-}" ]; then printf '%s\n' "$__line"; else printf '\r\033[K%.79s\r' "$__line"; fi >&2
  unset __line __script
fi
export PYKALDIST_TOLD=${PYKALDIST_TOLD:-true}

# A script whose `made=$(pykaldist ...) || end_with $?` failed ends by it: where the verb was killed, it has said nothing itself.
end_with() {
  if [ "$1" -gt 128 ] && [ "$1" != 130 ] && [ "$1" != 143 ]; then
    local why=$(($1 - 128))
    [ $why != 9 ] || why="9 (was there memory enough?)"
    echo "${0##*/}: ERROR: its process was killed by signal $why; run the same command again." >&2
  fi
  exit 1
}
