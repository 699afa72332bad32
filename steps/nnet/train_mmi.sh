#!/usr/bin/env bash
# Trains a network further by maximum mutual information (MMI), on lattices of the training data. Run again with the same options it resumes.

usage() {
  cat <<EOF
Usage: steps/nnet/train_mmi.sh [options] <data-dir> <lang-dir> <src-dir> <ali-dir> <denlats-dir> <exp-dir>
 e.g.: steps/nnet/train_mmi.sh --num-iters 4 --acwt 0.1 data-fbank/train data/lang exp/dnn exp/dnn_ali exp/dnn_denlats exp/dnn_mmi
EOF
  sequence_usage "\
  --boost <b>                      # boosted MMI: a frame with a wrong phone lowers the cost of a path by so much (0)
  --drop-frames true|false         # frames whose reference is not in the lattice have no derivative (true)"
}

[ -f path.sh ] && . ./path.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../utils/shared/sequence_training.sh"
train_sequence train_mmi "$@"
