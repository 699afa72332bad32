#!/usr/bin/env bash
# Prints the identity of an i-vector extractor: its checksum, by which networks and i-vectors are told to be of the same one.

usage() {
  cat <<EOF
Usage: steps/nnet2/get_ivector_id.sh <dir>
 e.g.: steps/nnet2/get_ivector_id.sh exp/nnet3/extractor
Prints <dir>/final.ie.id, which directories of i-vectors and of networks have, too, or makes it of <dir>/final.ie; nothing where there is
neither.
EOF
}

[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 1 ]; then usage >&2; exit 1; fi
dir=$1
if [ -f "$dir/final.ie.id" ]; then
  cat "$dir/final.ie.id"
elif [ -f "$dir/final.ie" ]; then
  sum=$(md5sum < "$dir/final.ie") || exit 1
  echo "${sum%% *}"
fi
