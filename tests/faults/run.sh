#!/usr/bin/env bash
# Disturbs every stage of the default recipe and training by several processes, and says what came of it: tests/faults/run.sh --help.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
. "$root/path.sh"
exec "${PYKALDIST_PYTHON:-python}" "$root/tests/faults/campaign.py" "$@"
