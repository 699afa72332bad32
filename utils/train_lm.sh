#!/usr/bin/env bash
# Estimates an n-gram language model and writes it as an ARPA file, for utils/format_lm.sh.

usage() {
  cat <<EOF
Usage: utils/train_lm.sh [options] <text> <lexicon-or-words.txt> <lm.arpa.gz>
 e.g.: utils/train_lm.sh --order 3 data/train/text data/local/dict/lexicon.txt data/local/lm.arpa.gz
The vocabulary is closed: the words of the lexicon but for those that begin with <, ! or #. Words of it that the text lacks get
their share of the unigrams' mass.
Options:
  --order <n>                          # longest n-gram (3)
  --smoothing kneser-ney|witten-bell   # interpolated modified Kneser-Ney, or Witten-Bell (kneser-ney)
  --oov <word>                         # stands for words outside the vocabulary ("": they are an error)
Of this name is also a program of kaldi_lm, which recipes call with one folder: it is run where --arpa or --lmtype is given.
EOF
}

order=3 smoothing=kneser-ney oov=""
[ -f path.sh ] && . ./path.sh
case " $*" in
  *" --lmtype"* | *" --arpa "*) exec "$PYKALDIST_ROOT/src/bin/train_lm.sh" "$@" ;;
esac
. parse_options.sh || exit 1
[ $# = 3 ] || { usage >&2; exit 1; }
for f in "$1" "$2"; do
  [ -f "$f" ] || { echo "train_lm.sh: ERROR: no file $f; run the data preparation stage." >&2; exit 1; }
done

messages=$(pykaldist train-lm --order "$order" --smoothing "$smoothing" --oov="$oov" "$1" "$2" "$3") || end_with $?
while IFS= read -r line; do echo "train_lm.sh: $line"; done <<< "$messages"
