#!/usr/bin/env bash
# Trains a GMM system further by minimum phone error (MPE), on lattices of the training data.
verb=train-mpe ubm="" fixed="--criterion=mpe" example="data/train data/lang exp/tri2b_ali exp/tri2b_denlats exp/tri2b_mpe"
makes="Means, variances and weights by extended Baum-Welch, for the expected share of frames whose phone is right."
own=(num_iters smooth_to_model) tau=400 weight_tau=0 stage=0
. "$(dirname "${BASH_SOURCE[0]}")/../utils/shared/gmm_sequence_training.sh"
