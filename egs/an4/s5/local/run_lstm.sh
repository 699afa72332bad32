#!/usr/bin/env bash
# An LSTM (2 x 256, targets delayed by 5 frames, 16 streams) on features and alignments of the recipe's DNN. After run.sh, stages 0 to 3.
exp=exp/lstm
. "$(dirname "${BASH_SOURCE[0]}")/../utils/shared/network.sh" || exit 1  # options; $ali, $data and $graph of the DNN

if want 2; then
  steps/nnet/train.sh --cmd "$cmd" --ngpu "$ngpu" --strategy "$strategy" --device "$device" --seed "$seed" --randomizer-seed "$seed" \
    --nnet lstm --hid-layers 2 --hid-dim 256 \
    --schedule exponential --learn-rate 0.004 --final-learn-rate 0.0004 --num-epochs 8 --momentum 0.5 $train_opts "$store" "$exp"
fi

if want 3; then decode_and_score "$data/test"; fi
