#!/usr/bin/env bash
# Decodes a data directory with a speaker-independent system: steps/decode.sh by another name.

usage() {
  cat <<EOF
Usage: steps/decode_si.sh [options] <graph-dir> <data-dir> <decode-dir>
 e.g.: steps/decode_si.sh --nj 4 exp/tri1/graph data/test exp/tri1/decode_test
Does what steps/decode.sh does, with its options.
EOF
}

case ${1:-} in
  "") usage >&2; exit 1 ;;
  --help | -h) usage ;;  # steps/decode.sh tells its own
esac
. "$(dirname "${BASH_SOURCE[0]}")/../utils/shared/say_what.sh"
exec "$(dirname "$0")/decode.sh" "$@"
