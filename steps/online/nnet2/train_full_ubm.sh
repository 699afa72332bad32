#!/usr/bin/env bash
# Trains a UBM of i-vectors with full covariances, from one with diagonal or full ones.

usage() {
  cat <<EOF
Usage: steps/online/nnet2/train_full_ubm.sh [options] <data-dir> <old-ubm-dir> <ubm-dir>
 e.g.: steps/online/nnet2/train_full_ubm.sh --nj 4 data/train_hires exp/nnet3/diag_ubm exp/nnet3/full_ubm
Writes final.ubm, its twin with diagonal covariances final.dubm, and the files that say how its features are made. The extractor that
train_ivector_extractor.sh trains on <ubm-dir> begins with the full covariances; it and extract_ivectors.sh divide frames by final.ubm,
extract_ivectors_online.sh, as in Kaldi, by final.dubm. The options are those of Kaldi's sid/train_full_ubm.sh.
Options:
  --num-iters <n>                   # iterations of EM ($num_iters)
  --num-gselect <n>                 # Gaussians that a frame is divided among ($num_gselect)
  --subsample <n>                   # every so many frames are used ($subsample)
  --min-gaussian-weight <w>         # a Gaussian of less weight stays as it is, or is removed at the end ($min_gaussian_weight)
  --remove-low-count-gaussians true|false   # at the end ($remove_low_count_gaussians)
  --stage, --cleanup <value>        # taken, and change nothing: it begins anew
$(array_job_usage "jobs, no more than utterances (4)")
EOF
}

nj=4 cmd=run.pl jobs=auto block_frames=0 num_iters=4 num_gselect=20 subsample=5 min_gaussian_weight=0.0001 remove_low_count_gaussians=true
stage=-2 cleanup=true
[ -f path.sh ] && . ./path.sh
. gmm_jobs.sh
. parse_options.sh || exit 1
if [ $# != 3 ]; then usage >&2; exit 1; fi
data=$1 src=$2 dir=$3
for f in "$data/feats.scp" "$src"/{final.dubm,final.mat,global_cmvn.stats,splice_opts,online_cmvn.conf}; do
  [ -f "$f" ] || { . missing.sh train_full_ubm.sh "$f"; exit 1; }
done
. fewer_jobs.sh
fewer_jobs "$data" utterances
options=(--nj "$nj" --block-frames "$block_frames")
gmm_jobs
$stage_cmd "$dir/log/train.log" pykaldist train-ivector-full-ubm "${options[@]}" --num-iters "$num_iters" --num-gselect "$num_gselect" \
  --subsample "$subsample" --min-gaussian-weight "$min_gaussian_weight" --remove-low-count-gaussians "$remove_low_count_gaussians" \
  "$@" || exit 1
echo "train_full_ubm.sh: $(sed -n 's/^SUMMARY: //p' "$dir/log/train.log"); UBM in $dir/final.ubm"
