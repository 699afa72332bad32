#!/usr/bin/env bash
# An LSTM (2 x 256, targets delayed by 5 frames, 16 streams) on the features and alignments of the recipe's DNN. After run.sh, stages 0 to 3.
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
exec utils/run_nnet.sh --exp exp/lstm --network "--nnet lstm --hid-layers 2 --hid-dim 256
  --schedule exponential --learn-rate 0.004 --final-learn-rate 0.0004 --num-epochs 8 --momentum 0.5" "$@"
