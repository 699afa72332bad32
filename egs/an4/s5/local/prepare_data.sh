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
. parse_options.sh || exit 1
[ $# = 0 ] || { usage >&2; exit 1; }
. say_what.sh

messages=$(pykaldist prepare-corpus --corpus="$corpus" --fetch-dir corpus an4 data) || exit 1
while IFS= read -r line; do echo "prepare_data.sh: $line"; done <<< "$messages"
