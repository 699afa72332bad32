#!/usr/bin/env bash
# Decodes a data directory with a GMM system and fMLLR transforms in a basis, for which seconds of speech are enough, and scores the lattices.
name=decode_basis_fmllr.sh example="exp/tri3/graph data/test exp/tri3/decode_basis_test"
transforms="fMLLR transforms in the basis that get_fmllr_basis.sh has made"
fmllr_basis=fmllr.basis fmllr_min_count=200 num_iters=10 size_scale=0.2 step_size_iters=3
own=(fmllr_basis fmllr_min_count num_iters size_scale step_size_iters)
own_usage="  --fmllr-basis <file>         # the basis, in the system's directory (default fmllr.basis)
  --fmllr-min-count <n>        # frames that a speaker needs; with fewer he keeps the identity (default 200)
  --num-iters <n>              # steps of the estimation of a transform (default 10)
  --size-scale <x>             # matrices of the basis that a transform may have, a frame (default 0.2)
  --step-size-iters <n>        # iterations in which the length of a step is found (default 3)"
. "$(dirname "${BASH_SOURCE[0]}")/../utils/shared/decode_fmllr.sh"
