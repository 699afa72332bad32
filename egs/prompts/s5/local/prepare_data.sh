#!/usr/bin/env bash
# Makes data/{train,dev,test} and data/local/dict of Asterisk's voice prompts.

usage() {
  cat <<EOF
Usage: local/prepare_data.sh [options]
 e.g.: local/prepare_data.sh --corpus /usr/share/asterisk/sounds --languages "en fr"
The corpus is that of <dir>; else /usr/share/asterisk/sounds; else fetched into corpus/, without root: Debian's packages or Asterisk's
tarballs, whose SHA-256 is checked; a download that broke off goes on where it was. Of every ten texts of a language, sorted by the
prompts' names, two are for testing and one for development; prompts that say the same go together. The dictionary has the words of all
prompts, for a telephone system knows what it says; local/lexicon.txt has their pronunciations. The language model is estimated later,
on the training prompts only: words that only others have get their share of the unigrams' mass.
Options:
  --corpus <dir>       # folder with the prompts
  --languages <list>   # some of them only (en es fr it ru)
EOF
}

corpus="" languages="en es fr it ru"
[ -f path.sh ] && . ./path.sh
. prepare_corpus.sh || exit 1  # reads the options
prepare_corpus --lexicon local/lexicon.txt --languages "$languages" prompts
