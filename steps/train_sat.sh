#!/usr/bin/env bash
# Trains a speaker-adapted GMM system: SAT, with an fMLLR transform for each speaker.
verb=train-sat example="exp/tri2_ali exp/tri3"
features="The features are those of <alignment-dir> (deltas, or LDA+MLLT), and so are the first transforms, where it has trans.*."
writes="final.mdl, final.alimdl (for features that are not adapted), tree, trans.*, ali.*.gz"
power=0.2 fmllr_iters="2 4 6 12" fmllr_update_type=full silence_weight=0.0
own=(fmllr_iters fmllr_update_type silence_weight)
own_usage='  --fmllr-iters <list>      # iterations that estimate fMLLR (2 4 6 12)
  --fmllr-update-type full|diag|offset|none   # what transforms may be (full)
  --silence-weight <w>      # weight of silence in their estimation (0.0)'
. "$(dirname "${BASH_SOURCE[0]}")/../utils/shared/train_triphones.sh"
