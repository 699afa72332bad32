#!/usr/bin/env bash
# Runs the tests: tests/run.sh [--all] [pytest arguments]. --all adds the slow ones. Sets up .venv where it is missing.
# --gpu checks this machine's GPUs in ten minutes instead (--gpu limits throughput: only so), --evidence trains ten cells of egs/study again and compares them with its results,
# in 15; each ends with status 77 where what it needs is not there.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
. "$root/path.sh"
cd "$root" || exit 1
case "${1:-}" in
  --help | -h) sed -n '2,4s/^# //p' tests/run.sh; exit 0 ;;
  --gpu) shift; exec "${PYKALDIST_PYTHON:-python}" tests/cuda/gpu_check.py "$@" ;;
  --evidence)
    an4=${PYKALDIST_SHARED:-$root/shared}/golden/an4_kaldi
    [ -d "$an4" ] || { echo "run.sh: $an4 is not here, so that no cell of the study can be trained." >&2; exit 77; }
    exec egs/study/run.sh --an4 "$an4" --evidence true ;;
  --all) shift; select=() ;;
  *) select=(-m "not slow") ;;
esac
# A whole run uses the cores, and one process more as some tests only wait, four at most, where pytest-xdist is there; a file's tests stay in
# one process. `-n 0` makes it one process.
spread=()
if "${PYKALDIST_PYTHON:-python}" -c 'import xdist' 2>/dev/null; then
  spread=(-n "$(n=$(($(nproc) + 1)); echo $((n < 4 ? n : 4)))" --dist loadfile --no-loadscope-reorder)
fi
for argument in "$@"; do [ ! -e "${argument%%::*}" ] || spread=(); done
"${PYKALDIST_PYTHON:-python}" -m pytest "${select[@]}" "${spread[@]}" "$@" || exit
"${PYKALDIST_PYTHON:-python}" -m ruff check --quiet . || { echo "run.sh: ERROR: the tests pass, but ruff finds fault with the style." >&2; exit 1; }
