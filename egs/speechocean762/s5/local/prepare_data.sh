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
. parse_options.sh || exit 1
[ $# = 0 ] || { usage >&2; exit 1; }
. say_what.sh

messages=$(pykaldist prepare-corpus --corpus="$corpus" --fetch-dir corpus --speakers "$speakers" speechocean762 data) || exit 1
while IFS= read -r line; do echo "prepare_data.sh: $line"; done <<< "$messages"
