#!/usr/bin/env bash
# Trains a UBM, one mixture of diagonal Gaussians for all frames, from the Gaussians of a GMM system.

usage() {
  cat <<EOF
Usage: steps/train_diag_ubm.sh [options] <num-gauss> <data-dir> <lang-dir> <alignment-dir> <ubm-dir>
 e.g.: steps/train_diag_ubm.sh --silence-weight 0.5 250 data/train data/lang exp/tri3b_ali exp/dubm3b
The features are those of <alignment-dir>, with its transforms of speakers where it has trans.*. Writes final.dubm to <ubm-dir>.
Options:
  --num-iters <n>              # iterations of EM ($num_iters)
  --silence-weight <w>         # weight of frames of silence (1.0)
  --intermediate <n>           # Gaussians after the merging within pdfs, from which that among all begins ($intermediate)
  --num-gselect <n>, --stage <n>  # taken as Kaldi takes them, and change nothing: every frame has all Gaussians, and it begins anew
$(gmm_job_usage "jobs, no more than utterances (4)")
EOF
}

nj=4 cmd=run.pl jobs=auto block_frames=0 keep_feats=auto device=cpu num_iters=3 silence_weight=1.0 intermediate=2000 num_gselect=50 stage=-2
[ -f path.sh ] && . ./path.sh
. gmm_jobs.sh
. parse_options.sh || exit 1
if [ $# != 5 ]; then usage >&2; exit 1; fi
data=$2 lang=$3 ali=$4 dir=$5
for f in "$data/feats.scp" "$data/text" "$lang/L.fst" "$ali"/{final.mdl,ali.1.gz}; do
  [ -f "$f" ] || { . missing.sh train_diag_ubm.sh "$f"; exit 1; }
done
. fewer_jobs.sh
fewer_jobs "$data" utterances
options=(--nj "$nj" --block-frames "$block_frames" --keep-feats "$keep_feats" --device "$device")
gmm_jobs
$stage_cmd "$dir/log/train.log" pykaldist train-diag-ubm "${options[@]}" --num-iters "$num_iters" \
  --silence-weight "${silence_weight:-1.0}" --intermediate "$intermediate" "$@" || exit 1
grep '^WARNING:' "$dir/log/train.log" | sed 's/^/train_diag_ubm.sh: /' >&2
echo "train_diag_ubm.sh: $(sed -n 's/^SUMMARY: //p' "$dir/log/train.log"); UBM in $dir/final.dubm"
