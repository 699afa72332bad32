#!/usr/bin/env bash
# A CNN on filterbanks with deltas, on the recipe's alignments, beside its DNN: features, training, decoding, scoring. After run.sh, stages
# 0 to 2.

usage() {
  cat <<EOF
Usage: local/run_cnn.sh [options]
 e.g.: local/run_cnn.sh --seed 1 --ngpu 4 --strategy bmuf
Writes exp/cnn and what decoding leaves in it; features go to data-fbank.
Options:
  --stage <n>               # 0 features, 1 frame store, 2 training, 3 decoding and scoring (0)
  --train <name>, --ali <dir>, --graph <dir>   # data set, its alignments, decoding graph (train_sp, exp/mono_ali, exp/mono/graph; train,
                            # exp/ali and exp/ali/graph after --ali-dir)
  --exp <dir>               # where to write (exp/cnn)
  --seed <n>                # of weights and of the order of frames (777)
  --ngpu <n>, --strategy <name>, --device <name>   # as run.sh's
  --train-opts <options>    # more for steps/nnet/train.sh, such as "--nnet chan2015-cnn"
  --nj <n>                  # feature and decoding jobs (the machine's cores)
  --cmd <command>           # how to run jobs (see cmd.sh)
EOF
}

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
. ./cmd.sh
stage=0 train=train_sp ali=exp/mono_ali graph=exp/mono/graph exp=exp/cnn seed=777 nj=$(nproc) ngpu=1 strategy=ma train_opts="" device=auto
. ./path.sh
. parse_options.sh || exit 1
[ $# = 0 ] || { usage >&2; exit 1; }
set -e

if [ "$stage" -le 0 ]; then
  for set in $train test; do
    utils/copy_data_dir.sh data/$set data-fbank/$set
    steps/make_fbank.sh --nj "$nj" --cmd "$cmd" data-fbank/$set exp/make_fbank/$set fbank
    utils/fix_data_dir.sh data-fbank/$set
    steps/compute_cmvn_stats.sh data-fbank/$set exp/make_fbank/$set fbank
  done
fi

if [ "$stage" -le 1 ]; then
  steps/nnet/pack.sh --cmd "$cmd" --delta-opts "--delta-order=2" data-fbank/$train $ali "$exp/store"
fi

if [ "$stage" -le 2 ]; then
  steps/nnet/train.sh --cmd "$cmd" --ngpu "$ngpu" --strategy "$strategy" --device "$device" --seed "$seed" --randomizer-seed "$seed" \
    --nnet chan2015-cnn-small --batch-norm true \
    --schedule exponential --learn-rate 0.002 --final-learn-rate 0.0002 --num-epochs 6 $train_opts "$exp/store" "$exp"
fi

if [ "$stage" -le 3 ]; then
  steps/decode.sh --skip-scoring true --nj "$nj" --cmd "$cmd" "$graph" data-fbank/test "$exp/decode"
  utils/score.sh --cmd "$cmd" data-fbank/test "$graph" "$exp/decode"
fi
