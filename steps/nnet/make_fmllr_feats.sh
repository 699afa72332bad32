#!/usr/bin/env bash
# Makes a data directory whose features are those that a speaker-adapted GMM system sees: CMVN, deltas or LDA+MLLT, fMLLR.

usage() {
  cat <<EOF
Usage: steps/nnet/make_fmllr_feats.sh [options] <new-data> <src-data> <gmm-dir> <log-dir> <fmllr-dir>
 e.g.: steps/nnet/make_fmllr_feats.sh --nj 4 --transform-dir exp/tri3_ali \\
         data-fmllr/train data/train exp/tri3 exp/make_fmllr_feats fmllr
Writes <new-data> with its feats.scp; the archives go to <fmllr-dir>. Nothing is left to normalise: give steps/nnet/pack.sh
--cmvn-opts --norm-means=false.
Options:
  --transform-dir <dir>   # directory with trans.* of the speakers of <src-data>; without it no fMLLR is applied
  --nj <n>                # jobs; no more than utterances (4)
  --cmd <command>         # how to run them (run.pl)
Not here: --raw-transform-dir.
EOF
}

nj=4 cmd=run.pl transform_dir="" raw_transform_dir=""
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 5 ]; then usage >&2; exit 1; fi
[ -z "$raw_transform_dir" ] || {
  echo "make_fmllr_feats.sh: ERROR: --raw-transform-dir: fMLLR of raw features is not made here; use --transform-dir." >&2; exit 1; }
new=$1 src=$2 gmm=$3 log_dir=$4 fmllr_dir=$5
for f in "$src/feats.scp" "$gmm/final.mdl" ${transform_dir:+"$transform_dir/trans.1"}; do
  [ -f "$f" ] || { . missing.sh make_fmllr_feats.sh "$f"; exit 1; }
done
[ ! "$new" -ef "$src" ] || { echo "make_fmllr_feats.sh: ERROR: <new-data> and <src-data> are the same; give another." >&2; exit 1; }
[ -n "$transform_dir" ] || echo "make_fmllr_feats.sh: WARNING: no --transform-dir, so no fMLLR is applied" >&2

copy_data_dir.sh "$src" "$new" > /dev/null || exit 1
rm -f "$new"/{feats.scp,cmvn.scp,utt2num_frames,utt2dur}  # of the source's features
. fewer_jobs.sh
fewer_jobs "$src" utterances
$cmd JOB=1:"$nj" "$log_dir/make_fmllr_feats.JOB.log" pykaldist make-fmllr-feats ${transform_dir:+--transform-dir "$transform_dir"} \
  --job JOB --nj "$nj" "$new" "$src" "$gmm" "$fmllr_dir" || exit 1
made=$(pykaldist collect-feats --kind fmllr --nj "$nj" "$new" "$fmllr_dir") || end_with $?
echo "make_fmllr_feats.sh: $made"
