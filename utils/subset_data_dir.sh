#!/usr/bin/env bash
# Copies some utterances of a data directory to a new one.

usage() {
  cat <<EOF
Usage: utils/subset_data_dir.sh [--first|--last|--shortest|--speakers|--per-spk] <data> <number> <new-data>
   or: utils/subset_data_dir.sh --utt-list <file>|--spk-list <file> <data> <new-data>
 e.g.: utils/subset_data_dir.sh --shortest data/train 1000 data/train_1kshort
Without an option the utterances are spread evenly over the list. --speakers takes whole speakers until there are enough,
--per-spk that many of each speaker. Where there are fewer than <number>, all are taken, with a warning.
EOF
}

[ -f path.sh ] && . ./path.sh
case "${1:-}" in --help | -h) usage; exit 0 ;; esac
[ $# -ge 3 ] || { usage >&2; exit 1; }
. say_what.sh
message=$(pykaldist subset-data-dir "$@") || end_with $?
echo "subset_data_dir.sh: $message"
