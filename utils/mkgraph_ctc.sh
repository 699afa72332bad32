#!/usr/bin/env bash
# Makes the decoding graph (TLG) of a network trained with CTC on phones, and a language model.

usage() {
  cat <<EOF
Usage: utils/mkgraph_ctc.sh <lang-dir> <model-dir> <graph-dir>
 e.g.: utils/mkgraph_ctc.sh data/lang_test exp/ctc exp/ctc/graph
       steps/decode.sh --acwt 0.8 --scoring-opts "--min-lmwt 1 --max-lmwt 6" exp/ctc/graph data/test exp/ctc/decode
<lang-dir> has L_disambig.fst and G.fst (utils/format_lm.sh), <model-dir> final.pt and tokens.txt (train.sh --objective ctc).
The graph is written as <graph-dir>/HCLG.fst, where steps/decode.sh looks for one.
EOF
}

[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 3 ]; then usage >&2; exit 1; fi
made=$(pykaldist mkgraph-ctc "$@") || end_with $?
echo "mkgraph_ctc.sh: $made"
