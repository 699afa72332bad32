#!/usr/bin/env bash
# Makes data/{train,test}, data/local/dict and data/local/lm.arpa of CMU AN4.

usage() {
  cat <<EOF
Usage: local/prepare_data.sh [--corpus <dir>]
 e.g.: local/prepare_data.sh --corpus /corpora/an4
The corpus is that of <dir>, in its public layout (etc/, wav/); else it is cloned from github.com/cmusphinx/an4 into corpus/.
EOF
}

corpus=""
[ -f path.sh ] && . ./path.sh
. prepare_corpus.sh || exit 1  # reads the options
prepare_corpus an4
