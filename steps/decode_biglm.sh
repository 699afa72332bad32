#!/usr/bin/env bash
# Decodes with a graph of a small language model, and puts the costs of a large one in the place of the small one's.
nj=4
cmd=run.pl
maxactive=7000
beam=13.0
lattice_beam=6.0
first_lattice_beam=10.0
acwt=0.083333
model=
skip_scoring=false
scoring_opts=

usage() {
  cat <<EOF
Usage: steps/decode_biglm.sh [options] <graph-dir> <old-G.fst> <new-G.fst> <data-dir> <decode-dir>
 e.g.: steps/decode_biglm.sh --nj 10 exp/tri1/graph_tgpr data/lang_test_{tgpr,tg}/G.fst data/test_dev93 exp/tri1/decode_tg_dev93
<old-G.fst> is the language model of the graph, <new-G.fst> one of the same words. The utterances are decoded with the graph into lattices
of --first-lattice-beam; there the old model's costs are taken off and the new one's added, exactly, and paths beyond --lattice-beam
are removed. (Kaldi's decoder does that while it searches. A sentence that the first lattices lack is not found here; a wider first beam
finds it.) The model is final.mdl in the parent of <decode-dir>. Writes <decode-dir>/lat.JOB.gz, and scores them if <data-dir> has text.
Options:
  --nj <n>                     # jobs (default $nj)
  --cmd <command>              # how to run them (default run.pl)
  --beam <beam>                # of the search (default $beam)
  --first-lattice-beam <beam>  # how much worse than the best path a path may be by the old model (default $first_lattice_beam)
  --lattice-beam <beam>        # and by the new one (default $lattice_beam)
  --maxactive <n>              # most states active in a frame (default $maxactive)
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
first=$dir/first
. score_decoded.sh
. fewer_jobs.sh

for file in "$graph"/{HCLG.fst,words.txt} "$old" "$new" "$data/feats.scp" ${model:+"$model"}; do
  [ -f "$file" ] || { echo "decode_biglm.sh: ERROR: $file does not exist." >&2; exit 1; }
done
fewer_jobs "$data" utterances
mkdir -p "$dir/log" "$first" && rm -f "$dir"/{lat.*.gz,wer_*,best_wer,dev_chosen_wer} || exit 1
echo "$nj" > "$dir/num_jobs" || exit 1
$cmd JOB=1:"$nj" "$dir/log/decode.JOB.log" pykaldist decode --job JOB --nj "$nj" --beam "$beam" --lattice-beam "$first_lattice_beam" \
  --max-active "$maxactive" --acwt "$acwt" ${model:+--model "$model"} --srcdir "$(dirname "$dir")" "$graph" "$data" "$first" || exit 1
$cmd JOB=1:"$nj" "$dir/log/rescorelm.JOB.log" pykaldist lmrescore --job JOB --acwt "$acwt" --lattice-beam "$lattice_beam" "$old" "$new" \
  "$first" "$dir" || exit 1
rm -rf "$first"
if [ "$skip_scoring" = false ] && [ -f "$data/text" ]; then
  score_decoded --cmd "$cmd" $scoring_opts "$data" "$graph" "$dir" || exit 1
fi
echo "decode_biglm.sh: lattices of $(wc -l < "$data/utt2spk") utterances in $dir"
