#!/usr/bin/env bash
# Character error rates of a decode directory, at every language model weight and word insertion penalty.
unit=char
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../utils/shared/score_kaldi.sh"
