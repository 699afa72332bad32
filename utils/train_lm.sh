#!/usr/bin/env bash
# Estimates an n-gram language model and writes it as an ARPA file, for utils/format_lm.sh.

usage() {
  cat <<EOF
Usage: utils/train_lm.sh [options] <text> <lexicon-or-words.txt> <lm.arpa.gz>
   or: utils/train_lm.sh --arpa --lmtype <type> <dir>
 e.g.: utils/train_lm.sh --order 3 data/train/text data/local/dict/lexicon.txt data/local/lm.arpa.gz
       utils/train_lm.sh --arpa --lmtype 3gram-mincount data/local/lm
The vocabulary is closed: the words of the lexicon but for those that begin with <, ! or #. Words of it that the text lacks get
their share of the unigrams' mass.
The second form is that of kaldi_lm: <dir> has train.gz and word_map, and gets <type>/lm_unpruned.gz; train_lm.sh in src/bin says more.
Options:
  --order <n>                          # longest n-gram (3)
  --smoothing kneser-ney|witten-bell   # interpolated modified Kneser-Ney, or Witten-Bell (kneser-ney)
  --heldout-text <text>                # text whose perplexity is printed, likewise with names of utterances ("")
  --oov <word>                         # stands for words outside the vocabulary ("": they are an error)
Options of the second form:
  --arpa                               # the model is an ARPA file; it always is
  --lmtype <type>                      # 3gram, 4gram, 3gram-mincount or 4gram-mincount
  --heldout-sent <n>                   # sentences whose perplexity is printed (10000)
EOF
}

order=3 smoothing=kneser-ney oov="" heldout_text="" lmtype="" heldout_sent=10000
[ -f path.sh ] && . ./path.sh
case " $* " in *" --arpa "* | *" --lmtype"*) exec "${PYKALDIST_ROOT:-$(dirname "$(readlink -f "$0")")/..}/src/bin/train_lm.sh" "$@" ;; esac
. parse_options.sh || exit 1
[ $# = 3 ] || { usage >&2; exit 1; }
for f in "$1" "$2" ${heldout_text:+"$heldout_text"}; do
  [ -f "$f" ] || { echo "train_lm.sh: ERROR: no file $f; the recipe's stages print what makes it: ./run.sh --dry-run true" >&2; exit 1; }
done

messages=$(pykaldist train-lm --order "$order" --smoothing "$smoothing" --oov="$oov" \
  ${heldout_text:+--heldout-text "$heldout_text"} "$1" "$2" "$3") || end_with $?
while IFS= read -r line; do echo "train_lm.sh: $line"; done <<< "$messages"
