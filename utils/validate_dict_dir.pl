#!/usr/bin/env bash
# Checks a dictionary directory: phones, pronunciations and questions, line by line.

usage() {
  cat <<EOF
Usage: utils/validate_dict_dir.pl <dict-dir>
 e.g.: utils/validate_dict_dir.pl data/local/dict
Exit status 0 if the directory is valid; else one sentence says what is wrong, with file and line.
EOF
}

[ -f path.sh ] && . ./path.sh
case "${1:-}" in --help | -h) usage; exit 0 ;; esac
[ $# = 1 ] || { usage >&2; exit 1; }
. say_what.sh
message=$(pykaldist validate-dict-dir "$1") || end_with $?
echo "validate_dict_dir.pl: $message"
