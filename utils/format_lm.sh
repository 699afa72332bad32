#!/usr/bin/env bash
# Makes a language directory with the grammar G.fst of an ARPA language model.

usage() {
  cat <<EOF
Usage: utils/format_lm.sh <lang-dir> <arpa-lm> <lexicon> <out-lang-dir>
 e.g.: utils/format_lm.sh data/lang data/local/lm.arpa.gz data/local/dict/lexicon.txt data/lang_test
<out-lang-dir> becomes a copy of <lang-dir> with G.fst. The ARPA file (gzipped if it ends in .gz) is checked line by line; n-grams with
words that are not in words.txt are left out.
EOF
}

[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 4 ]; then usage >&2; exit 1; fi
lang=$1 arpa=$2 lexicon=$3 out_lang=$4

for file in "$lang"/{L_disambig.fst,words.txt} "$arpa" "$lexicon"; do
  [ -f "$file" ] || { . missing.sh format_lm.sh "$file"; exit 1; }
done
made=$(pykaldist format-lm "$lang" "$arpa" "$lexicon" "$out_lang") || end_with $?
echo "format_lm.sh: ${made//$'\n'/$'\n'format_lm.sh: }"
