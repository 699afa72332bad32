#!/usr/bin/env bash
# Trains a GMM system further by state-level minimum Bayes risk (sMBR), on lattices of the training data.
verb=train-mpe ubm="" fixed="--criterion=smbr" example="data/train data/lang exp/tri2b_ali exp/tri2b_denlats exp/tri2b_smbr"
makes="Means, variances and weights by extended Baum-Welch, for the expected share of frames whose pdf is right."
own=(num_iters smooth_to_model one_silence_class) tau=400 weight_tau=0 stage=0
. "$(dirname "${BASH_SOURCE[0]}")/../utils/shared/gmm_sequence_training.sh"
