#!/usr/bin/env bash
# Estimates an n-gram language model with Kneser-Ney smoothing, one discount an order, and writes it as an ARPA file.

usage() {
  cat <<EOF
Usage: utils/lang/make_kn_lm.py [-ngram-order <n>] [-text <text>] [-lm <arpa>] [-verbose <n>]
 e.g.: utils/lang/make_kn_lm.py -ngram-order 7 -text exp/g2p/aligned_lexicon.corpus -lm exp/g2p/aligned_lexicon.arpa
The text has a sentence a line, and is standard input by default; the ARPA file is standard output. The order is 4 by default.
EOF
}

order=4 text=- lm=-
while [ $# -gt 0 ]; do
  case $1 in
    -ngram-order | --ngram-order) order=$2 ;;
    -text | --text) text=$2 ;;
    -lm | --lm) lm=$2 ;;
    -verbose | --verbose) ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; echo "make_kn_lm.py: ERROR: there is no option $1." >&2; exit 1 ;;
  esac
  [ $# -ge 2 ] || { usage >&2; echo "make_kn_lm.py: ERROR: option $1 needs a value." >&2; exit 1; }
  shift 2
done
least=()
for n in $(seq 3 "$order"); do least+=("-gt${n}min" 1); done
ngram-count -order "$order" -ukndiscount "${least[@]}" -text "$text" -lm "$lm"
