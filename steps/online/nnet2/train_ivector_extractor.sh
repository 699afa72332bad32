#!/usr/bin/env bash
# Trains an i-vector extractor: how the means of a UBM's Gaussians depend on speaker and room.

usage() {
  cat <<EOF
Usage: steps/online/nnet2/train_ivector_extractor.sh [options] <data-dir> <ubm-dir> <extractor-dir>
 e.g.: steps/online/nnet2/train_ivector_extractor.sh --nj 4 data/train_hires exp/nnet3/diag_ubm exp/nnet3/extractor
Writes final.ie, with the files that say how its features are made, and final.ie.id, its checksum.
Options:
  --ivector-dim <n>                 # dimension of the i-vectors ($ivector_dim)
  --num-iters <n>                   # iterations of EM ($num_iters)
  --num-gselect <n>                 # most Gaussians of a frame ($num_gselect)
  --min-post <p>                    # posteriors below it are left out ($min_post)
  --posterior-scale <s>             # scale of the posteriors, for frames beside each other say the same ($posterior_scale)
  --subsample <n>                   # every so many frames are used ($subsample)
  --online-cmvn-iextractor true|false   # the extractor, too, sees features that are normalised by what was heard so far (false)
  --seed <n>                        # of the first extractor ($seed)
  --num-threads, --num-processes, --stage, --cleanup, --parallel-opts <value>   # taken, and change nothing: --nj and --jobs say who works
$(array_job_usage "jobs, no more than utterances (4)")
EOF
}

nj=4 num_threads=4 num_processes=4 cmd=run.pl jobs=auto block_frames=0 stage=-4 ivector_dim=100 online_cmvn_iextractor=false num_iters=10 num_gselect=5
posterior_scale=0.1 min_post=0.025 subsample=2 parallel_opts="" cleanup=true seed=0
[ -f path.sh ] && . ./path.sh
. gmm_jobs.sh
. parse_options.sh || exit 1
if [ $# != 3 ]; then usage >&2; exit 1; fi
data=$1 ubm=$2 dir=$3
for f in "$data/feats.scp" "$ubm"/{final.dubm,final.mat,global_cmvn.stats,splice_opts,online_cmvn.conf}; do
  [ -f "$f" ] || { . missing.sh train_ivector_extractor.sh "$f"; exit 1; }
done
. fewer_jobs.sh
fewer_jobs "$data" utterances
options=(--nj "$nj" --block-frames "$block_frames")
gmm_jobs
$stage_cmd "$dir/log/train.log" pykaldist train-ivector-extractor "${options[@]}" --ivector-dim "$ivector_dim" --num-iters "$num_iters" \
  --num-gselect "$num_gselect" --min-post "$min_post" --posterior-scale "$posterior_scale" --subsample "$subsample" \
  --online-cmvn-iextractor "$online_cmvn_iextractor" --seed "$seed" "$@" || exit 1
grep '^WARNING:' "$dir/log/train.log" | sed 's/^/train_ivector_extractor.sh: /' >&2
echo "train_ivector_extractor.sh: $(sed -n 's/^SUMMARY: //p' "$dir/log/train.log"); extractor in $dir/final.ie"
