#!/usr/bin/env bash
# Makes the denominator lattices of discriminative training: decodes the training data with a GMM and a unigram of its own words.
source=src-dir example="--transform-dir exp/tri3b_ali data/train data/lang exp/tri3b exp/tri3b_denlats" whose=""
check() {
  if [ -f "$1/final.alimdl" ] && [ -z "$transform_dir" ]; then
    echo "$name: ERROR: $1 is a speaker-adapted system; give --transform-dir, the directory of its alignment of this data." >&2
    exit 1
  fi
}
. "$(dirname "${BASH_SOURCE[0]}")/../utils/shared/make_denlats.sh"
