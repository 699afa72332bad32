#!/usr/bin/env bash
# Makes the decoding graph HCLG of a model and a language model.
self_loop_scale=0.1
transition_scale=1.0

usage() {
  cat <<EOF
Usage: utils/mkgraph.sh [options] <lang-dir> <model-dir> <graph-dir>
 e.g.: utils/mkgraph.sh data/lang_test exp/mono exp/mono/graph
<lang-dir> has L_disambig.fst and G.fst (utils/format_lm.sh), <model-dir> has tree and final.mdl.
Options:
  --self-loop-scale <scale>    # of the HMM's self-loop probabilities (default $self_loop_scale)
  --transition-scale <scale>   # of its other transition probabilities (default $transition_scale)
EOF
}

[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 3 ]; then usage >&2; exit 1; fi
lang=$1 model_dir=$2 graph_dir=$3

for file in "$lang"/{L_disambig.fst,G.fst,words.txt,phones/disambig.int} "$model_dir"/{tree,final.mdl}; do
  [ -f "$file" ] || { echo "mkgraph.sh: ERROR: $file does not exist." >&2; exit 1; }
done
made=$(pykaldist mkgraph --self-loop-scale "$self_loop_scale" --transition-scale "$transition_scale" \
  "$lang" "$model_dir" "$graph_dir") || end_with $?
echo "mkgraph.sh: $made"
