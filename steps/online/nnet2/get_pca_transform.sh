#!/usr/bin/env bash
# Estimates the PCA transform of the features that i-vectors are made of.

usage() {
  cat <<EOF
Usage: steps/online/nnet2/get_pca_transform.sh [options] <data-dir> <pca-dir>
 e.g.: steps/online/nnet2/get_pca_transform.sh --splice-opts "--left-context=3 --right-context=3" data/train_hires exp/nnet3/pca
The features are normalised by what was heard so far, and spliced. Writes final.mat, splice_opts, global_cmvn.stats, online_cmvn.conf.
Options:
  --dim <n>                         # dimensions after it ($dim)
  --splice-opts <options>           # frames beside each other (4 on either side)
  --online-cmvn-opts <options>      # of the normalisation (Kaldi's defaults)
  --normalize-mean true|false, --normalize-variance true|false   # mean 0, variance 1 after it (true)
  --max-utts <n>, --subsample <n>   # most utterances, every so many frames that it is estimated from ($max_utts, $subsample)
  --cmd <command>                   # how to run the job ($cmd)
  --stage <n>                       # above 0: the transform is there, and stays
EOF
}

cmd=run.pl stage=0 dim=40 normalize_variance=true normalize_mean=true splice_opts="" online_cmvn_opts="" max_utts=5000 subsample=5
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 2 ]; then usage >&2; exit 1; fi
data=$1 dir=$2
for f in feats.scp cmvn.scp; do
  [ -f "$data/$f" ] || { . missing.sh get_pca_transform.sh "$data/$f"; exit 1; }
done
[ "$stage" -le 0 ] || exit 0
$cmd "$dir/log/pca_est.log" pykaldist train-ivector-pca --dim "$dim" --splice-opts="$splice_opts" --online-cmvn-opts="$online_cmvn_opts" \
  --normalize-mean "$normalize_mean" --normalize-variance "$normalize_variance" --max-utts "$max_utts" --subsample "$subsample" \
  "$data" "$dir" || exit 1
echo "get_pca_transform.sh: $(sed -n 's/^SUMMARY: //p' "$dir/log/pca_est.log"); transform in $dir/final.mat"
