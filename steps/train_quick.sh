#!/usr/bin/env bash
# Trains a context-dependent GMM system that begins with the mixtures of the system which made the alignment.
verb=train-quick example="exp/tri5b_ali_960 exp/tri6b"
features="The features are those of <alignment-dir>, with its transforms of speakers where it has trans.*; none are estimated."
writes="final.mdl, final.alimdl where there are transforms, tree, the alignments ali.*.gz"
power=0.2 own=() own_usage=""
. "$(dirname "${BASH_SOURCE[0]}")/../utils/shared/train_triphones.sh"
