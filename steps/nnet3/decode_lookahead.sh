#!/usr/bin/env bash
# Decodes a data directory with an nnet3 network and a graph that is composed of HCLr.fst and Gr.fst while it is searched.

usage() {
  cat <<EOF
Usage: steps/nnet3/decode_lookahead.sh [options] <graph-dir> <data-dir> <decode-dir>
 e.g.: steps/nnet3/decode_lookahead.sh --acwt 1.0 --post-decode-acwt 10.0 exp/chain/tdnn/lgraph data/test_hires exp/chain/tdnn/decode_la
<graph-dir> is what utils/mkgraph_lookahead.sh makes. The options are those of steps/nnet3/decode.sh. Writes lattices, and scores them.
EOF
}

[ -f path.sh ] && . ./path.sh
if [ "$*" = --help ]; then usage; exit 0; fi
if [ $# -lt 3 ]; then usage >&2; exit 1; fi
exec "$(dirname "${BASH_SOURCE[0]}")/decode.sh" --lookahead true "$@"
