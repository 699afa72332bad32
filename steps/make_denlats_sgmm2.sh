#!/usr/bin/env bash
# Makes the denominator lattices of a subspace model (SGMM) system: decodes the training data with a unigram of its own words.
source=ali-dir example="--transform-dir exp/tri3b data/train data/lang exp/sgmm2_4a_ali exp/sgmm2_4a_denlats"
whose="Model and speakers' vectors are those of the alignment."
check() {
  if [ -f "$1/vecs.1" ]; then
    own=(--spk-vecs "$1")
  elif [ -f "$1/final.alimdl" ]; then
    echo "$name: ERROR: $1 has no vectors of speakers (vecs.1); give the directory of an alignment, as of" \
      "steps/align_sgmm2.sh --transform-dir exp/tri3b data/train data/lang $1 ${1}_ali" >&2
    exit 1
  fi
}
. "$(dirname "${BASH_SOURCE[0]}")/../utils/shared/make_denlats.sh"
