#!/usr/bin/env bash
# Gives pronunciations to words by a letter-to-sound model of steps/dict/train_g2p_phonetisaurus.sh.
stage=0
nbest=
thresh=5
pmass=

usage() {
  cat <<EOF
Usage: steps/dict/apply_g2p_phonetisaurus.sh [options] <word-list> <g2p-dir> <output-dir>
 e.g.: steps/dict/apply_g2p_phonetisaurus.sh --nbest 1 exp/g2p/oov_words.txt exp/g2p exp/g2p/oov_lex
Writes <output-dir>/lexicon.lex: word, probability, phones, tabs between. Words with letters that the model does not know have none;
they are in <output-dir>/lexicon.failed. Give --nbest, --pmass or both.
Options:
  --nbest <n>      # most pronunciations of a word (default: 20 with --pmass)
  --pmass <p>      # pronunciations until their probabilities sum to this (default: all of --nbest)
  --thresh <x>     # pronunciations go that are less probable than the best by more, in natural logarithms (default $thresh)
  --stage <n>      # taken, and without effect
EOF
}

[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
[ $# = 3 ] || { usage >&2; exit 1; }
words=$1 model=$2/model.fst dir=$3
for f in "$words" "$model"; do
  [ -f "$f" ] || { . missing.sh apply_g2p_phonetisaurus.sh "$f"; exit 1; }
done
[ -n "$nbest$pmass" ] || { echo "apply_g2p_phonetisaurus.sh: ERROR: give --nbest or --pmass." >&2; exit 1; }
mkdir -p "$dir" || exit 1
cp "$words" "$dir/wordlist.txt" || exit 1
phonetisaurus-apply --pmass "${pmass:-1.0}" --nbest "${nbest:-20}" --thresh "$thresh" --word_list "$words" --model "$model" \
  --accumulate --verbose --prob > "$dir/lexicon.lex" || exit 1
comm -13 <(cut -f 1 "$dir/lexicon.lex" | sort -u) <(awk 'NF {print $1}' "$words" | sort -u) > "$dir/lexicon.failed"
echo "apply_g2p_phonetisaurus.sh: $dir/lexicon.lex: pronunciations of $(cut -f 1 "$dir/lexicon.lex" | sort -u | wc -l) words," \
  "$(wc -l < "$dir/lexicon.failed") without"
