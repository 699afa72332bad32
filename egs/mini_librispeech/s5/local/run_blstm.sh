#!/usr/bin/env bash
# A bidirectional LSTM (2 x 256, chunks 21-64+21) on the features and alignments of the recipe's DNN. After run.sh, stages 0 to 3.
exp=exp/blstm
. "$(dirname "${BASH_SOURCE[0]}")/../utils/shared/network.sh" || exit 1  # options; $ali, $data and $graph of the DNN
. local/rescore.sh  # decode_all

if want 2; then
  steps/nnet/train.sh --cmd "$cmd" --ngpu "$ngpu" --strategy "$strategy" --device "$device" --seed "$seed" --randomizer-seed "$seed" \
    --nnet chen2016-dblstm-small --max-param-change 1 --momentum 0.9 --dropout 0.2 \
    --schedule exponential --learn-rate 0.008 --final-learn-rate 0.0004 --num-epochs 6 $train_opts "$store" "$exp"
fi

if want 3; then decode_all; fi
