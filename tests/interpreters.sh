#!/usr/bin/env bash
# Set-up, the default recipe and the quick tests under each Python that this machine has: tests/interpreters.sh [options], --help lists them.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
. "$root/path.sh"
exec "${PYKALDIST_PYTHON:-python}" "$root/tests/interpreters.py" "$@"
