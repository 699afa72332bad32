#!/usr/bin/env bash
# Makes a data directory whose features are the outputs of a network without its last components, such as those of a bottleneck.

usage() {
  cat <<EOF
Usage: steps/nnet/make_bn_feats.sh [options] <new-data> <src-data> <nnet-dir> <log-dir> <bn-dir>
 e.g.: steps/nnet/make_bn_feats.sh --nj 4 data-bn/train data-fbank/train exp/bn exp/make_bn_feats bn
Writes <new-data> with its feats.scp; the archives go to <bn-dir>. <nnet-dir> has final.nnet, with a bottleneck where train.sh had
--bottleneck-dim, or --bn-dim in Kaldi's form.
Options:
  --remove-last-components <n>   # components left out (4: <AffineTransform> <Sigmoid> <AffineTransform> <Softmax> behind the bottleneck)
  --nj <n>                       # jobs; no more than utterances (4)
  --cmd <command>                # how to run them (run.pl)
  --device <name>, or --use-gpu yes|no|optional   # where the network computes (cpu)
Not here: --htk-save, --ivector.
EOF
}

nj=4 cmd=run.pl remove_last_components=4 device=cpu use_gpu=no htk_save=false ivector="" nnet_forward_opts=""
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 5 ]; then usage >&2; exit 1; fi
. nnet1_options.sh
[ "$htk_save" = false ] || refuse --htk-save "features are Kaldi's archives"
new=$1 src=$2 nnet=$3 log_dir=$4 bn_dir=$5
for f in "$src/feats.scp" "$nnet"/final.{nnet,feature_transform}; do
  [ -f "$f" ] || { . missing.sh make_bn_feats.sh "$f"; exit 1; }
done
[ ! "$new" -ef "$src" ] || { echo "make_bn_feats.sh: ERROR: <new-data> and <src-data> are the same; give another." >&2; exit 1; }

copy_data_dir.sh "$src" "$new" > /dev/null || exit 1
rm -f "$new"/{feats.scp,cmvn.scp,utt2num_frames,utt2dur}  # of the source's features
. fewer_jobs.sh
fewer_jobs "$src" utterances
$cmd JOB=1:"$nj" "$log_dir/make_bn_feats.JOB.log" pykaldist make-bn-feats --remove-last-components "$remove_last_components" \
  --device "$device" --job JOB --nj "$nj" "$new" "$src" "$nnet" "$bn_dir" || exit 1
made=$(pykaldist collect-feats --kind bn --nj "$nj" "$new" "$bn_dir") || end_with $?
echo "make_bn_feats.sh: $made"
