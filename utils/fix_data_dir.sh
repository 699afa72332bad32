#!/usr/bin/env bash
# Mends a data directory: sorts its tables, and keeps the utterances that all of them have.

usage() {
  cat <<EOF
Usage: utils/fix_data_dir.sh <data>
 e.g.: utils/fix_data_dir.sh data/train
The tables as they were go to <data>/.backup.
EOF
}

[ -f path.sh ] && . ./path.sh
case "${1:-}" in --help | -h) usage; exit 0 ;; esac
[ $# = 1 ] || { usage >&2; exit 1; }
. say_what.sh
messages=$(pykaldist fix-data-dir "$1") || end_with $?
while IFS= read -r line; do echo "fix_data_dir.sh: $line"; done <<< "$messages"
