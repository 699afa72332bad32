#!/usr/bin/env bash
# Trains a context-dependent (triphone) GMM system on spliced features through LDA and MLLT, from an alignment.
verb=train-lda-mllt example="exp/tri1_ali exp/tri2" features=""
writes="final.mdl, tree, the transform final.mat, the alignments ali.*.gz"
power=0.25 mllt_iters="2 4 6 12" dim=40 cmvn_opts="" splice_opts=""
own=(mllt_iters dim cmvn_opts splice_opts)
own_usage='  --mllt-iters <list>       # iterations that estimate MLLT (2 4 6 12)
  --dim <n>                 # dimensions that LDA leaves (40)
  --splice-opts <options>   # such as "--left-context=3 --right-context=3" (4 on each side)
  --cmvn-opts <options>     # as in Kaldi, such as "--norm-vars=true"'
. "$(dirname "${BASH_SOURCE[0]}")/../utils/shared/train_triphones.sh"
