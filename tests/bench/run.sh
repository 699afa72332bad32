#!/usr/bin/env bash
# Runs one benchmark: tests/bench/run.sh <name> [options]; without a name, lists them.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
. "$root/path.sh"
if [ $# = 0 ] || [ "$1" = --help ]; then
  sed -n '2s/^# //p' "$0"
  for f in $(cd "$root" && grep -l __main__ tests/bench/*.py); do printf '  %-14s %s\n' "$(basename "$f" .py)" "$(sed -n '1s/"""//gp' "$root/$f")"; done
  exit 1
fi
name=$1; shift
[ -f "$root/tests/bench/$name.py" ] || { echo "bench/run.sh: ERROR: there is no benchmark $name; without arguments it lists them." >&2; exit 1; }
exec "${PYKALDIST_PYTHON:-python}" "$root/tests/bench/$name.py" "$@"
