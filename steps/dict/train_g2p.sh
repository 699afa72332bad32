#!/usr/bin/env bash
# Trains a letter-to-sound model (G2P) on a lexicon, for steps/dict/apply_g2p.sh.
iters=5
stage=0
encoding=utf-8
only_words=true
silence_phones=
devel=5%
cmd=run.pl

usage() {
  cat <<EOF
Usage: steps/dict/train_g2p.sh [options] <lexicon> <dir>
 e.g.: steps/dict/train_g2p.sh --silence-phones data/local/dict/silence_phones.txt data/local/dict/lexicon.txt exp/g2p
<lexicon> has a word and its phones on each line. Writes <dir>/g2p.model.final, an n-gram model of graphones; the errors on words that
were held out are printed, and are in <dir>/log/g2p.log.
Options:
  --iters <n>                   # longest n-gram (default $iters)
  --silence-phones <file>       # words that are one of these phones alone are left out (default: none are)
  --only-words true|false       # whether they are (default $only_words)
  --devel <share|lexicon>       # what is held out for the test (default $devel)
  --encoding <name>             # of the lexicon (default $encoding)
  --stage <n>                   # greater than 0: the model is there already (default $stage)
  --cmd <command>               # how to run the job (default $cmd)
EOF
}

[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
[ $# = 2 ] || { usage >&2; exit 1; }
lexicon=$1 dir=$2
[ -f "$lexicon" ] || { . missing.sh train_g2p.sh "$lexicon"; exit 1; }
mkdir -p "$dir/log" || exit 1
if $only_words && [ -n "$silence_phones" ]; then
  [ -f "$silence_phones" ] || { . missing.sh train_g2p.sh "$silence_phones"; exit 1; }
  awk -v list="$silence_phones" 'BEGIN {while ((getline line < list) > 0) {k = split(line, phones); for (i = 1; i <= k; i++) silence[phones[i]] = 1}}
    !(NF == 2 && $2 in silence)' "$lexicon" > "$dir/lexicon_onlywords.txt" || exit 1
  lexicon=$dir/lexicon_onlywords.txt
fi
if [ "$stage" -le 0 ]; then
  $cmd "$dir/log/g2p.log" g2p.py --order "$iters" --encoding "$encoding" --train "$lexicon" --devel "$devel" \
    --write-model "$dir/g2p.model.final" || exit 1
fi
echo "train_g2p.sh: $dir/g2p.model.final: $(grep '^held out: ' "$dir/log/g2p.log" || echo 'nothing was held out')"
