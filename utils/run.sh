#!/usr/bin/env bash
# Runs jobs on this machine, as Kaldi's run.pl does.

usage() {
  cat <<EOF
Usage: utils/run.sh [JOB=<first>:<last>] <log> <command> [<argument> ...]
 e.g.: utils/run.sh JOB=1:4 exp/mono/log/align.JOB.log pykaldist align --job JOB --nj 4 ...
JOB in the log's name and the command becomes the job's number; the jobs run at the same time. Each log has the command, its
output, and how it ended. Exit status 0 if every job's was; else the error of a failed log is shown. The first job may draw
its progress bar on the caller's terminal. Ctrl-C, SIGTERM and a closed terminal reach the jobs as SIGTERM. However run.sh ends,
and what has called it: its jobs and all that they have started end with it, within 10 s.
EOF
}

case "${1:-}" in --help | -h) usage; exit 0 ;; esac
[ $# -ge 2 ] || { usage >&2; exit 1; }
PYKALDIST_ROOT=${PYKALDIST_ROOT:-$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd -P)}
. "$PYKALDIST_ROOT/utils/shared/jobs_command.sh"
command=("${jobs_command[@]}" run "$@")
env --block-signal=INT true 2>/dev/null && command=(env --block-signal=INT "${command[@]}")  # as in utils/pykaldist
exec "${command[@]}"
