#!/usr/bin/env bash
# Makes a language directory with G.carpa, a large ARPA language model in Kaldi's ConstArpaLm format.

usage() {
  cat <<EOF
Usage: utils/build_const_arpa_lm.sh <arpa-lm> <old-lang-dir> <new-lang-dir>
 e.g.: utils/build_const_arpa_lm.sh data/local/lm_fglarge.arpa.gz data/lang data/lang_test_fglarge
<new-lang-dir> becomes a copy of <old-lang-dir> with G.carpa, for steps/lmrescore_const_arpa.sh. The ARPA file (gzipped if it ends in .gz) is
checked line by line; n-grams with words that are not in words.txt are left out.
EOF
}

[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 3 ]; then usage >&2; exit 1; fi
made=$(pykaldist build-const-arpa "$1" "$2" "$3") || end_with $?
echo "build_const_arpa_lm.sh: $made"
