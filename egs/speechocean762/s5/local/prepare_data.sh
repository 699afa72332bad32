#!/usr/bin/env bash
# Makes data/{train,test} and data/local/dict of speechocean762.

usage() {
  cat <<EOF
Usage: local/prepare_data.sh [--corpus <dir>] [--speakers adults|all]
 e.g.: local/prepare_data.sh --corpus /corpora/speechocean762
The corpus is that of <dir>, in its public layout (train/, test/, WAVE/, resource/); else it is fetched from OpenSLR 101 into corpus/.
A copy without test/ has every tenth of its speakers held out.
EOF
}

corpus="" speakers=adults
[ -f path.sh ] && . ./path.sh
. prepare_corpus.sh || exit 1  # reads the options
prepare_corpus --speakers "$speakers" speechocean762
