#!/usr/bin/env bash
# An LSTM (Chan & Lane, 2015: 2 x 800, projected to 512) on features and alignments of the recipe's DNN. After run.sh, stages 0 to 3.
exp=exp/lstm
. "$(dirname "${BASH_SOURCE[0]}")/../utils/shared/network.sh" || exit 1  # options; $ali, $data and $graph of the DNN
. local/rescore.sh  # decode_all

if want 2; then
  steps/nnet/train.sh --cmd "$cmd" --ngpu "$ngpu" --strategy "$strategy" --device "$device" --seed "$seed" --randomizer-seed "$seed" \
    --nnet chan2015-rnn \
    --schedule exponential --learn-rate 0.004 --final-learn-rate 0.0004 --num-epochs 4 --momentum 0.5 $train_opts "$store" "$exp"
fi

if want 3; then decode_all; fi
