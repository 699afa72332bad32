#!/usr/bin/env bash
# Word error rates of a decode directory, at every language model weight and word insertion penalty.
unit=word
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../utils/shared/score_kaldi.sh"
