#!/usr/bin/env bash
# A bidirectional LSTM (2 x 256, chunks 21-64+21) on the features and alignments of the recipe's DNN. After run.sh, stages 0 to 3.
# Without the bound on the change, some seeds go astray in the first epoch (see AN4's RESULTS.md).
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
exec utils/run_nnet.sh --exp exp/blstm --network "--nnet chen2016-dblstm-small --max-param-change 1 --momentum 0.9 --dropout 0.2
  --schedule exponential --learn-rate 0.008 --final-learn-rate 0.0004 --num-epochs 6" "$@"
