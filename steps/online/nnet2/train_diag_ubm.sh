#!/usr/bin/env bash
# Trains the UBM of i-vectors, one mixture of diagonal Gaussians for all frames, on features alone.

usage() {
  cat <<EOF
Usage: steps/online/nnet2/train_diag_ubm.sh [options] <data-dir> <num-gauss> <pca-dir> <ubm-dir>
 e.g.: steps/online/nnet2/train_diag_ubm.sh --num-frames 700000 data/train_hires 512 exp/nnet3/pca exp/nnet3/diag_ubm
The features are normalised by what was heard so far, and transformed with splice_opts and final.mat of <pca-dir>, which may be that of an
LDA+MLLT system. Writes final.dubm, with the files that say how its features are made. Where there are fewer than 10 frames for a Gaussian, it
has fewer Gaussians, with a warning.
Options:
  --num-frames <n>                  # most frames of the first training, taken at random ($num_frames)
  --num-iters-init <n>              # its iterations of EM ($num_iters_init)
  --initial-gauss-proportion <p>    # part of the Gaussians that it begins with ($initial_gauss_proportion)
  --num-iters <n>                   # iterations of EM on all frames ($num_iters)
  --subsample <n>                   # every so many frames are used in these ($subsample)
  --min-gaussian-weight <w>         # a Gaussian of less weight is removed ($min_gaussian_weight)
  --remove-low-count-gaussians true|false   # at the end ($remove_low_count_gaussians)
  --online-cmvn-config <file>       # options of the normalisation ($online_cmvn_config)
  --seed <n>                        # of the random frames and splits ($seed)
  --device <name>                   # cpu, cuda, cuda:N, or auto ($device)
  --num-gselect, --num-threads, --stage, --cleanup, --parallel-opts <value>   # taken, and change nothing: every frame has all Gaussians,
                                    # and it begins anew
$(array_job_usage "jobs, no more than utterances (4)")
EOF
}

nj=4 cmd=run.pl jobs=auto block_frames=0 num_iters=4 stage=-2 num_gselect=30 num_frames=500000 num_iters_init=20 initial_gauss_proportion=0.5 subsample=2 cleanup=true
min_gaussian_weight=0.0001 remove_low_count_gaussians=true num_threads=16 parallel_opts="" online_cmvn_config=conf/online_cmvn.conf seed=0
device=cpu
[ -f path.sh ] && . ./path.sh
. gmm_jobs.sh
. parse_options.sh || exit 1
if [ $# != 4 ]; then usage >&2; exit 1; fi
data=$1 src=$3 dir=$4
for f in "$data/feats.scp" "$data/cmvn.scp" "$src/final.mat" "$src/splice_opts" "$online_cmvn_config"; do
  [ -f "$f" ] || { . missing.sh train_diag_ubm.sh "$f"; exit 1; }
done
. fewer_jobs.sh
fewer_jobs "$data" utterances
options=(--nj "$nj" --block-frames "$block_frames" --device "$device")
gmm_jobs
$stage_cmd "$dir/log/train.log" pykaldist train-ivector-ubm "${options[@]}" --num-frames "$num_frames" \
  --num-iters-init "$num_iters_init" --initial-gauss-proportion "$initial_gauss_proportion" --num-iters "$num_iters" \
  --subsample "$subsample" --min-gaussian-weight "$min_gaussian_weight" --remove-low-count-gaussians "$remove_low_count_gaussians" \
  --online-cmvn-config "$online_cmvn_config" --seed "$seed" "$@" || exit 1
grep '^WARNING:' "$dir/log/train.log" | sed 's/^/train_diag_ubm.sh: /' >&2
echo "train_diag_ubm.sh: $(sed -n 's/^SUMMARY: //p' "$dir/log/train.log"); UBM in $dir/final.dubm"
