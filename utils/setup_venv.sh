#!/usr/bin/env bash
# Makes .venv at the project's root from requirements.txt, once; says nothing when it is there already.
# Needs python3 >= 3.10 and pip, no root. path.sh calls it.
set -u
root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd -P)
want="$root $(cksum < "$root/requirements.txt")"
[ "$(cat "$root/.venv/made-from" 2>/dev/null)" = "$want" ] && exit 0

die() { echo "setup_venv.sh: ERROR: $*" >&2; exit 1; }
python=""
for candidate in python3 python3.13 python3.12 python3.11 python3.10; do
  "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && python=$candidate && break
done
[ -n "$python" ] || die "python3 >= 3.10 is needed and was not found; install it (Debian: apt-get install python3 python3-pip)."
"$python" -m pip --version >/dev/null 2>&1 || die "$python has no pip; install it (Debian: apt-get install python3-pip)."

# One maker at a time: parallel jobs that start on a fresh clone wait for the first.
exec 9> "$root/.venv.lock" || die "cannot write in $root; clone the project where you may write."
if command -v flock >/dev/null; then flock 9; fi
[ "$(cat "$root/.venv/made-from" 2>/dev/null)" = "$want" ] && exit 0

echo "setup_venv.sh: making $root/.venv (once; about two minutes) ..." >&2
rm -rf "$root/.venv"
log="$root/.venv.log"
if ! { "$python" -m venv "$root/.venv" || { rm -rf "$root/.venv" && "$python" -m venv --without-pip "$root/.venv"; }; } > "$log" 2>&1; then
  die "$python -m venv failed: $(tail -n 1 "$log") (Debian: apt-get install python3-venv)."
fi
if "$root/.venv/bin/python" -m pip --version >/dev/null 2>&1; then
  pip=("$root/.venv/bin/python" -m pip)
else
  pip=("$python" -m pip --python "$root/.venv/bin/python")  # Debian without python3-venv; pip >= 22.3
fi
"${pip[@]}" install --disable-pip-version-check -r "$root/requirements.txt" >> "$log" 2>&1 ||
  die "pip could not install requirements.txt: $(grep -m 1 ERROR "$log" || tail -n 1 "$log") (whole log: $log; is a package index reachable, and is there disk space?)"
echo "$want" > "$root/.venv/made-from"
rm -f "$log"
echo "setup_venv.sh: .venv is ready" >&2
