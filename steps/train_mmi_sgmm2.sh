#!/usr/bin/env bash
# Trains a subspace model (SGMM) system further by maximum mutual information (MMI), on lattices of the training data.

usage() {
  cat <<EOF
Usage: steps/train_mmi_sgmm2.sh [options] <data-dir> <lang-dir> <alignment-dir> <denlats-dir> <exp-dir>
 e.g.: steps/train_mmi_sgmm2.sh --transform-dir exp/tri3b --boost 0.2 data/train data/lang exp/sgmm2_4a_ali exp/sgmm2_4a_denlats exp/sgmm2_4a_mmi
It starts from the model, the features and the speakers' vectors of <alignment-dir> (steps/align_sgmm2.sh); the lattices
(steps/make_denlats_sgmm2.sh) are of the same system. Writes <iteration>.mdl, final.mdl and what decoding needs, and <exp-dir>/denlats, the
lattices packed.
Options, Kaldi's with Kaldi's defaults:
  --transform-dir <dir>        # speakers' fMLLR transforms (trans.*), for a system that was trained with such
  --num-iters <n>              # iterations ($num_iters)
  --boost <b>                  # boosted MMI: a frame with a wrong phone lowers the cost of a path by so much ($boost)
  --cancel true|false          # a frame's numerator and denominator cancel, transition-id by transition-id ($cancel)
  --drop-frames true|false     # frames whose reference is not in the lattice are left out ($drop_frames)
  --acwt <scale>               # of log-likelihoods ($acwt)
  --update-opts <options>      # of the estimation, such as "--tau-v=50 --lrate-v=0.5" (pykaldist train-mmi-sgmm2 --help)
  --stage <n>                  # iteration to go on with, where a training was interrupted; up to 0: from the beginning ($stage)
  --config <file>              # options, one a line as name=value
and
$(array_job_usage "jobs, no more than utterances (as many as <alignment-dir> has files of alignments)")
$(keep_feats_usage)
EOF
}

cmd=run.pl jobs=auto block_frames=0 keep_feats=auto num_iters=4 boost=0.0 cancel=true drop_frames=false acwt=0.1 stage=0 update_opts="" transform_dir="" nj=""
[ -f path.sh ] && . ./path.sh
. gmm_jobs.sh
. parse_options.sh || exit 1
if [ $# != 5 ]; then usage >&2; exit 1; fi
data=$1 lang=$2 ali=$3 denlats=$4 exp=$5
for f in "$data/feats.scp" "$data/text" "$lang/phones/silence.csl" "$ali"/{final.mdl,tree,ali.1.gz,num_jobs} "$denlats/lat.1.gz" \
  ${transform_dir:+"$transform_dir/trans.1"}; do
  [ -f "$f" ] || { . missing.sh train_mmi_sgmm2.sh "$f"; exit 1; }
done
[ -n "$nj" ] || nj=$(cat "$ali/num_jobs") || exit 1
. fewer_jobs.sh
fewer_jobs "$data" utterances
options=(--nj "$nj" --block-frames "$block_frames" --keep-feats "$keep_feats" --num-iters "$num_iters")
gmm_jobs
if [ "$stage" -le 0 ] || [ ! -f "$exp/denlats/manifest.json" ]; then
  $cmd "$exp/log/pack.log" pykaldist pack-lattices "$lang" "$ali" "$denlats" "$exp/denlats" || exit 1
  echo "train_mmi_sgmm2.sh: $(sed -n 's/^SUMMARY: //p' "$exp/log/pack.log")"
fi
$stage_cmd "$exp/log/train.log" pykaldist train-mmi-sgmm2 "${options[@]}" --boost "$boost" --cancel "$cancel" \
  --drop-frames "$drop_frames" --acwt "$acwt" --stage "$stage" ${transform_dir:+--transform-dir "$transform_dir"} $update_opts \
  "$data" "$lang" "$ali" "$exp/denlats" "$exp" || exit 1
grep '^WARNING:' "$exp/log/train.log" | sed 's/^/train_mmi_sgmm2.sh: /' >&2
echo "train_mmi_sgmm2.sh: $(sed -n 's/^SUMMARY: //p' "$exp/log/train.log"); model in $exp"
