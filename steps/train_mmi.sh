#!/usr/bin/env bash
# Trains a GMM system further by maximum mutual information (MMI), on lattices of the training data.
verb=train-mmi ubm="" fixed="" example="data/train data/lang exp/tri2b_ali exp/tri2b_denlats exp/tri2b_mmi"
makes="Means, variances and weights by extended Baum-Welch, for MMI or boosted MMI."
own=(num_iters boost cancel drop_frames) tau=400 weight_tau=10 stage=0
. "$(dirname "${BASH_SOURCE[0]}")/../utils/shared/gmm_sequence_training.sh"
