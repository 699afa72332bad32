#!/usr/bin/env bash
# Copies a data directory, so that other features can be made of it.

usage() {
  cat <<EOF
Usage: utils/copy_data_dir.sh <data> <new-data>
 e.g.: utils/copy_data_dir.sh data/train data-fbank/train
EOF
}

[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
[ $# = 2 ] || { usage >&2; exit 1; }
message=$(pykaldist copy-data-dir "$@") || end_with $?
echo "copy_data_dir.sh: $message"
