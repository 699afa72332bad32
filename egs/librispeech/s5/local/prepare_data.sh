#!/usr/bin/env bash
# Makes the data directories, data/local/dict and data/local/lm_*.arpa.gz of LibriSpeech.

usage() {
  cat <<EOF
Usage: local/prepare_data.sh [--corpus <dir>] [--parts <parts>] [--lms <models>]
 e.g.: local/prepare_data.sh --corpus /corpora --parts "train-clean-100 dev-clean" --lms "tgsmall tgmed"
The corpus is that of <dir>, which has LibriSpeech/ and, there or in lm/, the lexicon and models of OpenSLR 11; else both are fetched from
OpenSLR into corpus/ (60 GB, and 2.2 GB of models). <parts> are of train-clean-100, train-clean-360, train-other-500, dev-clean, dev-other,
test-clean and test-other, <models> of tgsmall, tgmed, tglarge and fglarge.
EOF
}

corpus="" parts="" lms="tgsmall tgmed tglarge fglarge"
[ -f path.sh ] && . ./path.sh
. prepare_corpus.sh || exit 1  # reads the options
prepare_corpus ${parts:+--parts "$parts"} --lms "$lms" librispeech
