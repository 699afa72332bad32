#!/usr/bin/env bash
# Decodes with a graph of a small language model, and puts the costs of a large one in the place of the small one's while it searches.
nj=4
cmd=run.pl
maxactive=7000
beam=13.0
lattice_beam=6.0
min_active=200
acwt=0.083333
model=
skip_scoring=false
scoring_opts=

usage() {
  cat <<EOF
Usage: steps/decode_biglm.sh [options] <graph-dir> <old-G.fst> <new-G.fst> <data-dir> <decode-dir>
 e.g.: steps/decode_biglm.sh --nj 10 exp/tri1/graph_tgpr data/lang_test_{tgpr,tg}/G.fst data/test_dev93 exp/tri1/decode_tg_dev93
<old-G.fst> is the language model of the graph, <new-G.fst> one of the same words. Where a path takes a word, the old model's cost is taken
off and the new one's added, so that no graph of the new model is needed, however large it is. The old model guides the search: one of
single words does, or the new one pruned. The acoustic model is final.mdl in the parent of <decode-dir>. Writes <decode-dir>/lat.JOB.gz, and
scores them if <data-dir> has text.
Options:
  --nj <n>                     # jobs (default $nj)
  --cmd <command>              # how to run them (default run.pl)
  --beam <beam>                # of the search (default $beam)
  --lattice-beam <beam>        # how much worse than the best path a lattice's may be (default $lattice_beam)
  --maxactive <n>              # most states active in a frame (default $maxactive)
  --min-active <n>             # fewest (default $min_active)
  --acwt <scale>               # of the log-likelihoods while decoding (default $acwt)
  --model <file>               # GMM to decode with, in place of final.mdl
  --scoring-opts <options>     # for local/score.sh
  --skip-scoring true|false    # lattices only (default $skip_scoring)
EOF
}

[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 5 ]; then usage >&2; exit 1; fi
graph=$1 old=$2 new=$3 data=$4 dir=$5
. score_decoded.sh
. fewer_jobs.sh

for file in "$graph"/{HCLG.fst,words.txt} "$old" "$new" "$data/feats.scp" ${model:+"$model"}; do
  [ -f "$file" ] || { . missing.sh decode_biglm.sh "$file"; exit 1; }
done
fewer_jobs "$data" utterances
mkdir -p "$dir/log" && rm -f "$dir"/{lat.*.gz,wer_*,best_wer,dev_chosen_wer} || exit 1
echo "$nj" > "$dir/num_jobs" || exit 1
$cmd JOB=1:"$nj" "$dir/log/decode.JOB.log" pykaldist decode --job JOB --nj "$nj" --beam "$beam" --lattice-beam "$lattice_beam" \
  --max-active "$maxactive" --min-active "$min_active" --acwt "$acwt" ${model:+--model "$model"} --srcdir "$(dirname "$dir")" \
  --old-lm "$old" --new-lm "$new" "$graph" "$data" "$dir" || exit 1
if [ "$skip_scoring" = false ] && [ -f "$data/text" ]; then
  score_decoded --cmd "$cmd" $scoring_opts "$data" "$graph" "$dir" || exit 1
fi
echo "decode_biglm.sh: lattices of $(wc -l < "$data/utt2spk") utterances in $dir"
