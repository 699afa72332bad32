#!/usr/bin/env bash
# Runs jobs on this machine, as Kaldi's run.pl does.
set -u

usage() {
  cat <<EOF
Usage: utils/run.sh [JOB=<first>:<last>] <log> <command> [<argument> ...]
 e.g.: utils/run.sh JOB=1:4 exp/mono/log/align.JOB.log pykaldist align --job JOB --nj 4 ...
JOB in the log's name and the command becomes the job's number; the jobs run at the same time. Each log has the command, its
output, and how it ended. Exit status 0 if every job's was; else the error of a failed log is shown. The first job may draw
its progress bar on the caller's terminal.
EOF
}

case "${1:-}" in --help | -h) usage; exit 0 ;; esac
[ $# -ge 2 ] || { usage >&2; exit 1; }
name=""; first=1; last=1
if [[ $1 == [A-Za-z_]*=* ]]; then
  if [[ $1 =~ ^([A-Za-z_]+)=([0-9]+)(:([0-9]+))?$ ]]; then
    name=${BASH_REMATCH[1]} first=${BASH_REMATCH[2]} last=${BASH_REMATCH[4]:-${BASH_REMATCH[2]}}
  fi
  if [ -z "$name" ] || [ "$first" -gt "$last" ]; then
    echo "run.sh: ERROR: expected JOB=<first>:<last> from low to high, found $1." >&2; exit 1
  fi
  shift
fi
[ $# -ge 2 ] || { usage >&2; exit 1; }
log=$1; shift
exec 3>&2
pids=() logs=()
# A background job ignores Ctrl-C, so the interrupt is handed on as SIGTERM, which lets each job clean up.
trap 'trap - INT TERM; kill -TERM "${pids[@]}" 2>/dev/null; wait; exit 130' INT TERM
for ((job = first; job <= last; job++)); do
  if [ -n "$name" ]; then this_log=${log//$name/$job} command=("${@//$name/$job}"); else this_log=$log command=("$@"); fi
  mkdir -p "$(dirname "$this_log")" || exit 1
  {
    printf '# %s\n# Started at %s\n' "${command[*]}" "$(date)"
    if [ "$job" = "$first" ]; then export PYKALDIST_PROGRESS_FD=3; else unset PYKALDIST_PROGRESS_FD; exec 3>&-; fi
    "${command[@]}" &
    child=$!
    trap 'kill -TERM $child 2>/dev/null; wait $child; exit 143' TERM
    wait $child; status=$?
    printf '# Ended (code %d) at %s\n' "$status" "$(date)"
    exit $status
  } > "$this_log" 2>&1 &
  pids+=($!) logs+=("$this_log")
done
failed=()
for i in "${!pids[@]}"; do wait "${pids[i]}" || failed+=("${logs[i]}"); done
[ ${#failed[@]} = 0 ] && exit 0
{ grep -E 'ERROR:' "${failed[0]}" || grep -v '^#' "${failed[0]}"; } | tail -n 1 >&2
echo "run.sh: ${#failed[@]} of ${#pids[@]} jobs failed; log: ${failed[0]}" >&2
exit 1
