#!/usr/bin/env bash
# Makes data/{train_clean_5,dev_clean_2}, data/local/dict and data/local/lm_*.arpa.gz of Mini LibriSpeech.

usage() {
  cat <<EOF
Usage: local/prepare_data.sh [--corpus <dir>] [--lms <models>]
 e.g.: local/prepare_data.sh --corpus /corpora --lms "tgsmall tgmed"
The corpus is that of <dir>, which has LibriSpeech/ and, there or in lm/, the lexicon and models of OpenSLR 11; else both are fetched from
OpenSLR into corpus/ (0.5 GB, and 0.8 GB of models with tglarge). <models> are of tgsmall, tgmed, tglarge and fglarge.
EOF
}

corpus="" lms="tgsmall tgmed tglarge"
[ -f path.sh ] && . ./path.sh
. prepare_corpus.sh || exit 1  # reads the options
prepare_corpus --lms "$lms" mini_librispeech
