#!/usr/bin/env bash
# Aligns a data directory with a speaker-adapted GMM system, and estimates fMLLR transforms of its speakers.
verb=align-fmllr example="exp/tri3 exp/tri3_ali"
writes="the alignments ali.*.gz, the transforms trans.*, and copies of the models and their tree"
stage=0 fmllr_update_type=full silence_weight=0.0
own=(stage fmllr_update_type silence_weight)
own_usage='  --stage <n>               # what to go on with of an interrupted alignment: 2: its first alignment, 3: its transforms (0)
  --fmllr-update-type full|diag|offset|none   # what transforms may be (full)
  --silence-weight <w>      # weight of silence in their estimation (0.0)'
. "$(dirname "${BASH_SOURCE[0]}")/../utils/shared/align_gmm.sh"
