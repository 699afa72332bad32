#!/usr/bin/env bash
# A bidirectional LSTM (2 x 256, chunks 21-64+21) on the features and alignments of the recipe's DNN. After run.sh, stages 0 to 3.
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
exec utils/run_nnet.sh --exp exp/blstm --network "--nnet chen2016-dblstm-small
  --schedule exponential --learn-rate 0.004 --final-learn-rate 0.0004 --num-epochs 6 --momentum 0.5" "$@"
