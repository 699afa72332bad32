#!/usr/bin/env bash
# Makes data/{train,dev,test} and data/local/dict of TIMIT, with phones in the place of words.

usage() {
  cat <<EOF
Usage: local/prepare_data.sh --corpus <dir>
 e.g.: local/prepare_data.sh --corpus /corpora/LDC93S1
<dir> has TRAIN/ and TEST/, in it or below, or LDC93S1/. local/phones.tsv says which 48 phones the 61 of the transcripts become.
EOF
}

corpus=""
[ -f path.sh ] && . ./path.sh
. prepare_corpus.sh || exit 1  # reads the options
prepare_corpus --table local/phones.tsv timit
