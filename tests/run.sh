#!/usr/bin/env bash
# Runs the tests: tests/run.sh [--all] [pytest arguments]. --all adds the slow ones. --gpu checks this machine's GPUs in ten minutes instead, and ends with status 77 where there is none. Sets up .venv where it is missing.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
. "$root/path.sh"
cd "$root" || exit 1
case "${1:-}" in
  --help | -h) sed -n '2s/^# //p' tests/run.sh; exit 0 ;;
  --gpu) exec "${PYKALDIST_PYTHON:-python}" tests/cuda/gpu_check.py ;;
  --all) shift; select=() ;;
  *) select=(-m "not slow") ;;
esac
"${PYKALDIST_PYTHON:-python}" -m pytest "${select[@]}" "$@" || exit
"${PYKALDIST_PYTHON:-python}" -m ruff check --quiet . || { echo "run.sh: ERROR: the tests pass, but ruff finds fault with the style." >&2; exit 1; }
