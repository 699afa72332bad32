#!/usr/bin/env bash
# Makes .venv at the project's root from requirements.txt, once; says nothing when it is there already. path.sh calls it.
# Needs a Python from 3.10 to 3.14, with pip or uv, no root. PYKALDIST_SETUP_PYTHON=python3.12, or a path, says which one it is made with;
# else it is the first that fits of python3, python3.11 and others on PATH.
set -u
root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd -P)
named=${PYKALDIST_SETUP_PYTHON:-}
want="$root $(cksum < "$root/requirements.txt")"

ready() {
  local made="" by=""
  { read -r made; read -r by; } 2>/dev/null < "$root/.venv/made-from"
  [ "$made" = "$want" ] && [ -x "$root/.venv/bin/python" ] && { [ -z "$named" ] || [ "$named" = "$by" ]; }
}
ready && exit 0
PATH=:$PATH:; PATH=${PATH//":$root/.venv/bin:"/:}; PATH=${PATH#:}; PATH=${PATH%:}  # an activated .venv cannot be made anew by its own Python

die() { echo "setup_venv.sh: ERROR: $*" >&2; exit 1; }
# status 0 where a program is a Python that fits, 1 where it is another Python
fits() { "$1" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null; }

# choose CANDIDATE...: $python is the first that fits and can make environments by itself or by uv, else the first that fits
choose() {
  local candidate status
  for candidate in "$@"; do
    fits "$candidate"; status=$?
    if [ $status = 0 ]; then
      python=${python:-$candidate}
      if type -P uv >/dev/null || "$candidate" -c 'import venv, ensurepip' 2>/dev/null; then python=$candidate; return; fi
    elif [ $status = 1 ]; then
      others+="${others:+, }$candidate is $("$candidate" -V 2>&1)"
    fi
  done
}

python="" others=""
if [ -n "$named" ]; then
  choose "$named"
  [ -n "$python" ] || die "PYKALDIST_SETUP_PYTHON=$named must be a Python from 3.10 to 3.14 (${others:-it does not run}); name another, or" \
    "unset it and the first on PATH that fits is taken."
else
  choose python3 python3.11 python3.12 python3.13 python3.14 python3.10
  if [ -z "$python" ] && type -P uv >/dev/null; then choose "$(uv python find '>=3.10,<3.15' 2>/dev/null)"; fi
  [ -n "$python" ] || die "a Python from 3.10 to 3.14 is needed and there is none on PATH${others:+ ($others)}; install one (Debian, Ubuntu:" \
    "apt-get install python3 python3-venv; without root: uv python install 3.12), or name one in PYKALDIST_SETUP_PYTHON."
fi

# One maker at a time: parallel jobs that start on a fresh clone wait for the first.
exec 9> "$root/.venv.lock" || die "cannot write in $root; clone the project where you may write."
if command -v flock >/dev/null; then flock 9; fi
ready && exit 0
PYKALDIST_ROOT=$root
. "$root/utils/shared/guard.sh"  # an installer does not go on where the script that needs it has been ended
echo "setup_venv.sh: making $root/.venv with $("$python" -V 2>&1) (once; about two minutes) ..." >&2
PYTHONPATH="$root" "$python" -m pykaldist.setup_venv "$want" "$named" || exit 1
echo "setup_venv.sh: .venv is ready" >&2
