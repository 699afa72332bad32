#!/usr/bin/env bash
# Makes the decoding graph HCLG of a model and a language model.
. "$(dirname "${BASH_SOURCE[0]}")/shared/graph_options.sh"

usage() {
  cat <<EOF
Usage: utils/mkgraph.sh [options] <lang-dir> <model-dir> <graph-dir>
 e.g.: utils/mkgraph.sh data/lang_test exp/mono exp/mono/graph
<lang-dir> has L_disambig.fst and G.fst (utils/format_lm.sh), <model-dir> has tree and final.mdl.
Options:
$(graph_usage)
  --mono, --left-biphone, --quinphone   # taken and not needed, as in Kaldi: the tree says what it asks for
EOF
}

flags_of "--remove-oov --mono --left-biphone --quinphone" "$@"
set -- "${given[@]}"

[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 3 ]; then usage >&2; exit 1; fi
lang=$1 model_dir=$2 graph_dir=$3

for file in "$lang"/{L_disambig.fst,G.fst,words.txt,phones/disambig.int} "$model_dir"/{tree,final.mdl}; do
  [ -f "$file" ] || { . missing.sh mkgraph.sh "$file"; exit 1; }
done
made=$(pykaldist mkgraph --self-loop-scale "$self_loop_scale" --transition-scale "$transition_scale" \
  --remove-oov "$remove_oov" "$lang" "$model_dir" "$graph_dir") || end_with $?
echo "mkgraph.sh: $made"
