#!/usr/bin/env bash
# Makes data/{train,test}, data/local/dict and data/local/lm.arpa of yesno.

usage() {
  cat <<EOF
Usage: local/prepare_data.sh [--corpus <dir>]
 e.g.: local/prepare_data.sh --corpus /corpora/waves_yesno
The corpus is that of <dir> (waves_yesno or the folder that has it); else it is downloaded from openslr.org into corpus/.
EOF
}

corpus=""
[ -f path.sh ] && . ./path.sh
. prepare_corpus.sh || exit 1  # reads the options
prepare_corpus yesno
