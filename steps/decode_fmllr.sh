#!/usr/bin/env bash
# Decodes a data directory with a speaker-adapted GMM system, and scores the lattices.
name=decode_fmllr.sh example="exp/tri3/graph data/test exp/tri3/decode_test" transforms="fMLLR transforms"
fmllr_update_type=full
own=(fmllr_update_type)
own_usage="  --fmllr-update-type full|diag|offset|none   # what transforms may be (default full)"
. "$(dirname "${BASH_SOURCE[0]}")/../utils/shared/decode_fmllr.sh"
