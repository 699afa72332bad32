#!/usr/bin/env bash
# A CNN on filterbanks with deltas, on the alignments of the recipe's DNN. After run.sh, stages 0 to 3.
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
exec utils/run_nnet.sh --exp exp/cnn --fbank true --network "--nnet chan2015-cnn-small --batch-norm true
  --schedule exponential --learn-rate 0.002 --final-learn-rate 0.0002 --num-epochs 6" "$@"
