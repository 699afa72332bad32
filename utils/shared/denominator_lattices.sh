# Sourced by utils/shared/make_denlats.sh and steps/nnet/make_denlats.sh when their options are read. `denominator_lattices <data-dir> <lang-dir>
# <src-dir> <denlats-dir> [<option of steps/decode.sh> ...]` makes the unigram of the transcripts and its graph, and decodes with it. Run again
# after it was ended it keeps the graph, if what this is of is no newer, and goes on at the next utterance of each job.
denominator_lattices() {
  local data=$1 lang=$2 src=$3 dir=$4 name=${0##*/} file
  shift 4
  for file in "$data"/{feats.scp,text} "$lang"/{L_disambig.fst,words.txt,oov.int} "$src"/{final.mdl,tree}; do
    [ -f "$file" ] || { . missing.sh "$name" "$file"; return 1; }
  done
  mkdir -p "$dir/log" || return 1
  for file in "$src"/{final.mdl,tree} "$data/text" "$lang"/{L_disambig.fst,words.txt}; do
    [ "$dir/dengraph/HCLG.fst" -nt "$file" ] || rm -rf "$dir/dengraph"
  done
  if [ ! -f "$dir/dengraph/HCLG.fst" ]; then
    rm -rf "$dir/lang" && cp -rH "$lang" "$dir/lang" && chmod -R u+w "$dir/lang" || return 1
    (set -o pipefail
     sym2int.pl --map-oov "$(cat "$lang/oov.int")" -f 2- "$lang/words.txt" < "$data/text" | cut -d ' ' -f 2- | make_unigram_grammar.pl |
       fstcompile | fstarcsort --sort_type=ilabel > "$dir/lang/G.fst") || return 1
    mkgraph.sh "$dir/lang" "$src" "$dir/dengraph" || return 1
  fi
  "$PYKALDIST_ROOT/steps/decode.sh" --nj "$nj" --cmd "$cmd" --acwt "$acwt" --beam "$beam" --lattice-beam "$lattice_beam" \
    --max-active "$max_active" --srcdir "$src" --skip-scoring true --resume true "$@" "$dir/dengraph" "$data" "$dir" || return 1
  cat "$dir"/failed.* > "$dir/failed" || return 1
  [ ! -s "$dir/failed" ] || echo "$name: WARNING: $(wc -l < "$dir/failed") utterances have no lattice; $dir/failed says why." >&2
  echo "$name: lattices in $dir"
}
