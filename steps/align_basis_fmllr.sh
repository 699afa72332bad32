#!/usr/bin/env bash
# Aligns a data directory with a GMM system, and estimates its speakers' fMLLR transforms in the basis that get_fmllr_basis.sh has made.
verb=align-fmllr name=align_basis_fmllr.sh example="exp/tri3 exp/tri3_ali"
writes="the alignments ali.*.gz, the transforms trans.*, and copies of the models and their tree"
stage=0 fmllr_basis=fmllr.basis silence_weight=0.0 boost_silence=1.5 fmllr_update_type=full
basis_fmllr_opts="--fmllr-min-count=22 --num-iters=10 --size-scale=0.2 --step-size-iters=3"
own=(stage fmllr_basis silence_weight fmllr_update_type)
own_usage='  --stage <n>               # what to go on with of an interrupted alignment: 2: its first alignment, 3: its transforms (0)
  --fmllr-basis <file>      # the basis, in <src-dir> (fmllr.basis)
  --basis-fmllr-opts <options>   # of the estimation ("--fmllr-min-count=22 --num-iters=10 --size-scale=0.2 --step-size-iters=3")
  --fmllr-update-type full  # taken as Kaldi takes it, and nothing else than full: the basis says what transforms are
  --silence-weight <w>      # weight of silence in their estimation (0.0)'
. "$(dirname "${BASH_SOURCE[0]}")/../utils/shared/align_gmm.sh"
