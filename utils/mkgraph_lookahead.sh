#!/usr/bin/env bash
# Makes a decoding graph in two halves, HCLr.fst and Gr.fst, which are composed with each other while decoding.
. "$(dirname "${BASH_SOURCE[0]}")/shared/graph_options.sh"
compose_graph=false

usage() {
  cat <<EOF
Usage: utils/mkgraph_lookahead.sh [options] <lang-dir> <model-dir> [<arpa-file>] <graph-dir>
 e.g.: utils/mkgraph_lookahead.sh --self-loop-scale 1.0 data/lang exp/chain/tdnn data/local/lm.arpa.gz exp/chain/tdnn/lgraph
<lang-dir> has L_disambig.fst, and G.fst (utils/format_lm.sh) where no <arpa-file> is named; <model-dir> has tree and final.mdl. HCLr.fst is
the lexicon with context and HMMs, Gr.fst the language model, so that there is never a graph of both, which would be many times as large.
steps/decode.sh and Vosk decode with such a <graph-dir>.
Options:
$(graph_usage)
  --compose-graph              # write HCLG.fst of both too, for other decoders
EOF
}

flags_of "--remove-oov --compose-graph" "$@"
set -- "${given[@]}"

[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 3 ] && [ $# != 4 ]; then usage >&2; exit 1; fi
lang=$1 model_dir=$2 arpa="" graph_dir=$3
[ $# = 3 ] || { arpa=$3 graph_dir=$4; }

for file in "$lang"/{L_disambig.fst,words.txt,phones/disambig.int} "${arpa:-$lang/G.fst}" "$model_dir"/{tree,final.mdl}; do
  [ -f "$file" ] || { . missing.sh mkgraph_lookahead.sh "$file"; exit 1; }
done
if [ -f "$model_dir/frame_subsampling_factor" ] && [ "$self_loop_scale" = 0.1 ]; then
  echo "mkgraph_lookahead.sh: WARNING: chain models need --self-loop-scale 1.0" >&2
fi
made=$(pykaldist mkgraph-lookahead --self-loop-scale "$self_loop_scale" --transition-scale "$transition_scale" \
  --remove-oov "$remove_oov" --compose-graph "$compose_graph" ${arpa:+--arpa "$arpa"} "$lang" "$model_dir" "$graph_dir") || end_with $?
echo "mkgraph_lookahead.sh: $made"
