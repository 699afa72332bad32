#!/usr/bin/env bash
# A bidirectional LSTM (2 x 256, chunks 21-64+21) on the recipe's features and alignments, beside its DNN. After run.sh, stages 0 to 3.

usage() {
  cat <<EOF
Usage: local/run_blstm.sh [options]
 e.g.: local/run_blstm.sh --seed 1 --ngpu 4 --strategy bmuf
Writes exp/blstm and what decoding leaves in it.
Options:
  --stage <n>               # 0 training, 1 decoding and scoring (0)
  --store <dir>, --graph <dir>   # frame store and decoding graph (exp/dnn/store, exp/mono/graph; exp/ali/graph after --ali-dir)
  --exp <dir>               # where to write (exp/blstm)
  --seed <n>                # of weights and of the order of utterances (777)
  --ngpu <n>, --strategy <name>, --device <name>   # as run.sh's
  --train-opts <options>    # more for steps/nnet/train.sh, such as "--hid-layers 3"
  --forward-opts <options>  # how it reads utterances, such as "--forward chunks" or "--forward latency-controlled" (whole)
  --nj <n>                  # decoding jobs (the machine's cores)
  --cmd <command>           # how to run jobs (see cmd.sh)
EOF
}

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
. ./cmd.sh
stage=0 store=exp/dnn/store graph=exp/mono/graph exp=exp/blstm seed=777 nj=$(nproc) ngpu=1 strategy=ma train_opts="" device=auto
forward_opts=""
. ./path.sh
. parse_options.sh || exit 1
[ $# = 0 ] || { usage >&2; exit 1; }
set -e

if [ "$stage" -le 0 ]; then
  steps/nnet/train.sh --cmd "$cmd" --ngpu "$ngpu" --strategy "$strategy" --device "$device" --seed "$seed" --randomizer-seed "$seed" \
    --nnet chen2016-dblstm-small \
    --schedule exponential --learn-rate 0.004 --final-learn-rate 0.0004 --num-epochs 6 --momentum 0.5 $train_opts "$store" "$exp"
fi

if [ "$stage" -le 1 ]; then
  steps/decode.sh --skip-scoring true --nj "$nj" --cmd "$cmd" --forward-opts "$forward_opts" "$graph" data/test "$exp/decode"
  utils/score.sh --cmd "$cmd" data/test "$graph" "$exp/decode"
fi
