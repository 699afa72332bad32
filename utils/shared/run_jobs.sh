# Sourced by utils/{run,queue,slurm,ssh,retry}.pl, which have defined usage() and have "$@" as they were called: runs the jobs.
case "${1:-}" in --help | -h) usage; exit 0 ;; esac
[ $# -ge 2 ] || { usage >&2; exit 1; }
PYKALDIST_ROOT=${PYKALDIST_ROOT:-$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd -P)}
. "$PYKALDIST_ROOT/utils/shared/jobs_command.sh"
command=("${jobs_command[@]}" "${0##*/}" "$@")
env --block-signal=INT true 2>/dev/null && command=(env --block-signal=INT "${command[@]}")  # as in utils/pykaldist
exec "${command[@]}"
