#!/usr/bin/env bash
# Rescores the lattices of a subspace model (SGMM) system with another model of the same tree, such as one trained by MMI, and scores them.
cmd=run.pl iter=final transform_dir="" skip_scoring=false scoring_opts=""

usage() {
  cat <<EOF
Usage: steps/decode_sgmm2_rescore.sh [options] <graph-dir|lang-dir> <data-dir> <old-decode-dir> <decode-dir>
 e.g.: steps/decode_sgmm2_rescore.sh --iter 4 --transform-dir exp/tri3b/decode data/lang data/test exp/sgmm2_4a/decode exp/sgmm2_4a_mmi/decode_it4
The model is in the parent of <decode-dir>; speakers' vectors, and the fMLLR transforms that were estimated with them, are those of
<old-decode-dir>. Writes <decode-dir>/lat.JOB.gz, then scores if <data-dir> has text: by the recipe's local/score.sh, or where it has none by
steps/score_kaldi.sh.
Options:
  --transform-dir <dir>        # speakers' fMLLR transforms (trans.*) that <old-decode-dir> was decoded with
  --iter <iteration>           # the model, <iteration>.mdl ($iter)
  --cmd <command>              # how to run jobs ($cmd)
  --skip-scoring true|false    # lattices only ($skip_scoring)
  --scoring-opts <options>     # for local/score.sh
  --config <file>              # options, one a line as name=value
EOF
}

[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 4 ]; then usage >&2; exit 1; fi
graph=$1 data=$2 old=$3 dir=$4 src=$(dirname "$4")
. score_decoded.sh
for file in "$graph/words.txt" "$data/feats.scp" "$old"/{lat.1.gz,num_jobs} "$src/$iter.mdl" ${transform_dir:+"$transform_dir/trans.1"}; do
  [ -f "$file" ] || { . missing.sh decode_sgmm2_rescore.sh "$file"; exit 1; }
done
nj=$(< "$old/num_jobs")
[ ! -f "$old/trans.1" ] || transform_dir=$old  # which hold those of --transform-dir, too
vectors=()
[ ! -f "$old/vecs.1" ] || vectors=(--spk-vecs "$old")
mkdir -p "$dir/log" && rm -f "$dir"/{lat.*.gz,wer_*,best_wer,dev_chosen_wer} && echo "$nj" > "$dir/num_jobs" || exit 1
$cmd JOB=1:"$nj" "$dir/log/rescore.JOB.log" pykaldist rescore-lattices --job JOB --nj "$nj" --model "$src/$iter.mdl" --acwt 0.1 \
  --lattice-beam 0 "${vectors[@]}" ${transform_dir:+--transform-dir "$transform_dir"} "$data" "$src" "$old" "$dir" || exit 1
if [ "$skip_scoring" = false ] && [ -f "$data/text" ]; then
  score_decoded --cmd "$cmd" $scoring_opts "$data" "$graph" "$dir" > /dev/null || exit 1
fi
best=""; [ ! -f "$dir/best_wer" ] || best="; $(cat "$dir/best_wer")"
echo "decode_sgmm2_rescore.sh: lattices of $(wc -l < "$data/utt2spk") utterances in $dir$best"
