#!/usr/bin/env bash
# Estimates the basis of fMLLR transforms of a GMM system, from the data that it was trained on.

usage() {
  cat <<EOF
Usage: steps/get_fmllr_basis.sh [options] <data-dir> <lang-dir> <exp-dir>
 e.g.: steps/get_fmllr_basis.sh data/train data/lang exp/tri3
Writes <exp-dir>/fmllr.basis, for decode_basis_fmllr.sh and align_basis_fmllr.sh. <exp-dir> has the alignments of <data-dir>.
Options:
  --per-utt true|false      # gradients of utterances, not of speakers, of whom there may be too few ($per_utt)
  --silence-weight <w>      # weight of frames of silence ($silence_weight)
$(gmm_job_usage "jobs, no more than utterances (4)")
EOF
}

nj=4 cmd=run.pl jobs=auto block_frames=0 keep_feats=auto device=cpu per_utt=true silence_weight=0.01
[ -f path.sh ] && . ./path.sh
. gmm_jobs.sh
. parse_options.sh || exit 1
if [ $# != 3 ]; then usage >&2; exit 1; fi
data=$1 lang=$2 dir=$3
for f in "$data/feats.scp" "$data/text" "$lang/L.fst" "$dir/final.mdl" "$dir/ali.1.gz"; do
  [ -f "$f" ] || { . missing.sh get_fmllr_basis.sh "$f"; exit 1; }
done
. fewer_jobs.sh
fewer_jobs "$data" utterances
options=(--nj "$nj" --block-frames "$block_frames" --keep-feats "$keep_feats" --device "$device")
gmm_jobs
$stage_cmd "$dir/log/basis.log" pykaldist get-fmllr-basis "${options[@]}" --per-utt "$per_utt" --silence-weight "$silence_weight" \
  "$data" "$lang" "$dir" || exit 1
echo "get_fmllr_basis.sh: $(sed -n 's/^SUMMARY: //p' "$dir/log/basis.log"); basis in $dir/fmllr.basis"
