#!/usr/bin/env bash
# Trains a context-dependent (triphone) GMM system on features with deltas, from an alignment.
verb=train-deltas example="exp/mono_ali exp/tri1" features=""
writes="final.mdl, tree, the alignments ali.*.gz"
power=0.25 cmvn_opts="" delta_opts=""
own=(cmvn_opts delta_opts)
own_usage='  --cmvn-opts, --delta-opts <options>  # as in Kaldi, such as "--norm-vars=true"'
. "$(dirname "${BASH_SOURCE[0]}")/../utils/shared/train_triphones.sh"
