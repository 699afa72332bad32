#!/usr/bin/env bash
# Trains a network further by sMBR or MPE, on lattices of the training data. Run again with the same options it resumes.

usage() {
  cat <<EOF
Usage: steps/nnet/train_mpe.sh [options] <data-dir> <lang-dir> <src-dir> <ali-dir> <denlats-dir> <exp-dir>
 e.g.: steps/nnet/train_mpe.sh --num-iters 4 --do-smbr true --acwt 0.1 data-fbank/train data/lang exp/dnn exp/dnn_ali exp/dnn_denlats \\
         exp/dnn_smbr
EOF
  sequence_usage "\
  --do-smbr true|false             # sMBR, or MPE (true)
  --one-silence-class true|false   # any silence phone is right where the reference has one (true)
  --exclude-silphones true|false   # silence phones are treated apart (true)"
}

[ -f path.sh ] && . ./path.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../utils/shared/sequence_training.sh"
train_sequence train_mpe "$@"
