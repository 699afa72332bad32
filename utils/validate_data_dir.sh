#!/usr/bin/env bash
# Checks a data directory: tables sorted, complete, and about the same utterances.

usage() {
  cat <<EOF
Usage: utils/validate_data_dir.sh [--no-text] [--no-wav] [--no-feats] <data>
 e.g.: utils/validate_data_dir.sh --no-feats data/train
Exit status 0 if the directory is valid; else one sentence says what is wrong.
EOF
}

[ -f path.sh ] && . ./path.sh
case "${1:-}" in --help | -h) usage; exit 0 ;; "") usage >&2; exit 1 ;; esac
. say_what.sh
message=$(pykaldist validate-data-dir "$@") || end_with $?
echo "validate_data_dir.sh: $message"
