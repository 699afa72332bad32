#!/usr/bin/env bash
# Makes data/{train,dev,test}, data/local/dict and data/local/lm_{small,big}.arpa.gz of TED-LIUM release 3.

usage() {
  cat <<EOF
Usage: local/prepare_data.sh [--corpus <dir>]
 e.g.: local/prepare_data.sh --corpus /corpora/TEDLIUM_release-3
<dir> has legacy/ and TEDLIUM.152k.dic, in it or below, and 4gram_small.arpa.gz and 4gram_big.arpa.gz of kaldi-asr.org, in it or in lm/. What
is not there is fetched: the corpus from OpenSLR (number 51, 54 GB), the models from kaldi-asr.org. Speakers are parts of talks of three
minutes at most, as in Kaldi's recipe.
EOF
}

corpus=""
[ -f path.sh ] && . ./path.sh
. prepare_corpus.sh || exit 1  # reads the options
prepare_corpus --table local/words.tsv tedlium
for set in train dev test; do
  mv data/$set data/$set.orig || exit 1
  utils/data/modify_speaker_info.sh --seconds-per-spk-max 180 data/$set.orig data/$set || exit 1
done
