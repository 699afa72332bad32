#!/usr/bin/env bash
# Trains a letter-to-sound model (G2P) on a lexicon, for steps/dict/apply_g2p_phonetisaurus.sh.
stage=0
encoding=utf-8
only_words=true
silence_phones=

usage() {
  cat <<EOF
Usage: steps/dict/train_g2p_phonetisaurus.sh [options] <lexicon> <dir>
 e.g.: steps/dict/train_g2p_phonetisaurus.sh --silence-phones data/local/dict/silence_phones.txt data/local/dict/lexicon.txt exp/g2p
<lexicon> has a word and its phones on each line. Writes <dir>/aligned_lexicon.corpus, the words as graphones, their n-grams in
aligned_lexicon.arpa, and the model as model.fst, which is the ARPA file itself.
Options:
  --silence-phones <file>       # words whose phones are one of its lines are left out (default: none are)
  --only-words true|false       # whether they are (default $only_words)
  --encoding <name>             # of the lexicon (default $encoding)
  --stage <n>                   # where to go on: 0 the lexicon, 1 the alignment, 2 the n-grams, 3 the model (default $stage)
EOF
}

[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
[ $# = 2 ] || { usage >&2; exit 1; }
lexicon=$1
dir=$2
[ -f "$lexicon" ] || { . missing.sh train_g2p_phonetisaurus.sh "$lexicon"; exit 1; }
mkdir -p "$dir" || exit 1
if [ "$stage" -le 0 ]; then
  list=/dev/null
  if $only_words && [ -n "$silence_phones" ]; then list=$silence_phones; fi
  [ -e "$list" ] || { . missing.sh train_g2p_phonetisaurus.sh "$list"; exit 1; }
  set -o pipefail
  iconv -f "$encoding" -t utf-8 "$lexicon" | awk -v list="$list" 'BEGIN {while ((getline < list) > 0) {$1 = $1; silence[$0] = 1}}
    NF > 1 {word = $1; sub(/^[ \t]*[^ \t]+[ \t]+/, ""); $1 = $1; if (!($0 in silence)) print word "\t" $0}' \
    > "$dir/lexicon_tab_separated.txt" || exit 1
fi
if [ "$stage" -le 1 ]; then
  phonetisaurus-align --input="$dir/lexicon_tab_separated.txt" --ofile="$dir/aligned_lexicon.corpus" || exit 1
fi
if [ "$stage" -le 2 ]; then
  ngram-count -order 7 -kndiscount -interpolate -gt3min 1 -gt4min 1 -gt5min 1 -gt6min 1 -gt7min 1 \
    -text "$dir/aligned_lexicon.corpus" -lm "$dir/aligned_lexicon.arpa" || exit 1
fi
if [ "$stage" -le 3 ]; then
  phonetisaurus-arpa2wfst --lm="$dir/aligned_lexicon.arpa" --ofile="$dir/model.fst" || exit 1
fi
echo "train_g2p_phonetisaurus.sh: $dir/model.fst: $(wc -l < "$dir/aligned_lexicon.corpus") pronunciations"
