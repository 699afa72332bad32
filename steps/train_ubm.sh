#!/usr/bin/env bash
# Trains a UBM, one mixture of Gaussians with full covariances for all frames, from the Gaussians of a GMM system.

usage() {
  cat <<EOF
Usage: steps/train_ubm.sh [options] <num-gauss> <data-dir> <lang-dir> <alignment-dir> <ubm-dir>
 e.g.: steps/train_ubm.sh --silence-weight 0.5 400 data/train data/lang exp/tri3b_ali exp/ubm4a
The features are those of <alignment-dir>, with its transforms of speakers where it has trans.*. Writes final.ubm to <ubm-dir>.
Options:
  --num-iters <n>              # iterations of EM ($num_iters)
  --silence-weight <w>         # weight of frames of silence (1.0)
  --intermediate-num-gauss <n> # Gaussians after the merging within pdfs, from which that among all begins ($intermediate_num_gauss)
  --num-gselect2 <n>           # Gaussians that a frame is divided among, the best by their diagonal covariances ($num_gselect2)
  --no-fmllr true|false        # leave the transforms of speakers out ($no_fmllr)
  --config <file>              # options, one a line as name=value
  --num-gselect1, --stage <n>  # taken as Kaldi takes them, and change nothing: Gaussians are selected among all, and it begins anew
and
EOF
  array_job_usage "jobs, no more than utterances (as many as <alignment-dir> has files of alignments)"
  keep_feats_usage
}

nj="" cmd=run.pl jobs=auto block_frames=0 keep_feats=auto num_iters=3 silence_weight=1.0 intermediate_num_gauss=2000 num_gselect1=50 num_gselect2=25 no_fmllr=false stage=-2
[ -f path.sh ] && . ./path.sh
. gmm_jobs.sh
. parse_options.sh || exit 1
if [ $# != 5 ]; then usage >&2; exit 1; fi
data=$2 lang=$3 ali=$4 dir=$5
for f in "$data/feats.scp" "$data/text" "$lang/L.fst" "$ali"/{final.mdl,ali.1.gz,num_jobs}; do
  [ -f "$f" ] || { . missing.sh train_ubm.sh "$f"; exit 1; }
done
[ -n "$nj" ] || nj=$(cat "$ali/num_jobs") || exit 1
. fewer_jobs.sh
fewer_jobs "$data" utterances
options=(--nj "$nj" --block-frames "$block_frames" --keep-feats "$keep_feats" --num-iters "$num_iters" --no-fmllr "$no_fmllr")
gmm_jobs
$stage_cmd "$dir/log/train.log" pykaldist train-ubm "${options[@]}" --silence-weight "${silence_weight:-1.0}" \
  --intermediate "$intermediate_num_gauss" --num-gselect "$num_gselect2" "$@" || exit 1
grep '^WARNING:' "$dir/log/train.log" | sed 's/^/train_ubm.sh: /' >&2
echo "train_ubm.sh: $(sed -n 's/^SUMMARY: //p' "$dir/log/train.log"); UBM in $dir/final.ubm"
