#!/usr/bin/env bash
# Gives pronunciations to words by a letter-to-sound model of steps/dict/train_g2p.sh.
stage=0
encoding=utf-8
var_counts=3
var_mass=0.9
nj=10
cmd=run.pl

usage() {
  cat <<EOF
Usage: steps/dict/apply_g2p.sh [options] <word-list> <g2p-dir> <output-dir>
 e.g.: steps/dict/apply_g2p.sh --var-counts 1 oov_words exp/g2p exp/g2p/oov_lex
Writes <output-dir>/lexicon.lex: word, probability, phones, tabs between. Words with letters that the model does not know have none;
they are named in <output-dir>/log.
Options:
  --var-counts <n>     # most pronunciations of a word (default $var_counts)
  --var-mass <p>       # pronunciations until their probabilities sum to this (default $var_mass)
  --encoding <name>    # of the word list (default $encoding)
  --nj <n>             # number of jobs (default $nj)
  --stage <n>          # greater than 0: the jobs have run already (default $stage)
  --cmd <command>      # how to run the jobs (default $cmd)
EOF
}

[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
[ $# = 3 ] || { usage >&2; exit 1; }
words=$1 model=$2/g2p.model.final dir=$3
for f in "$words" "$model"; do
  [ -f "$f" ] || { . missing.sh apply_g2p.sh "$f"; exit 1; }
done
mkdir -p "$dir/log" || exit 1
cp "$words" "$dir/wordlist.txt" || exit 1
num_words=$(wc -l < "$dir/wordlist.txt")
[ "$nj" -le "$num_words" ] || nj=$((num_words > 0 ? num_words : 1))
if [ "$stage" -le 0 ]; then
  rm -f "$dir"/output.*
  $cmd JOB=1:"$nj" "$dir/log/apply.JOB.log" split -n l/JOB/"$nj" "$dir/wordlist.txt" \| \
    g2p.py -V "$var_mass" --variants-number "$var_counts" --encoding "$encoding" --model "$model" --apply - \
    \> "$dir/output.JOB" || exit 1
fi
for job in $(seq "$nj"); do cat "$dir/output.$job" || exit 1; done > "$dir/output"
cut -f 1,3,4 "$dir/output" > "$dir/lexicon.lex" || exit 1
made=$(cut -f 1 "$dir/lexicon.lex" | sort -u | wc -l)
wanted=$(awk 'NF {print $1}' "$dir/wordlist.txt" | sort -u | wc -l)
echo "apply_g2p.sh: $dir/lexicon.lex: pronunciations of $made of $wanted words"
