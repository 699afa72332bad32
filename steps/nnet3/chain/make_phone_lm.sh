#!/usr/bin/env bash
# Makes the phone language model of chain (LF-MMI) training, which steps/nnet3/chain/train.py else makes by itself.

usage() {
  cat <<EOF
Usage: steps/nnet3/chain/make_phone_lm.sh [options] <tree-dir>|<ali-dir> <out-dir>|<phone-lm-fst>
 e.g.: steps/nnet3/chain/make_phone_lm.sh --num-extra-lm-states 2000 exp/chain/tree exp/chain/tdnn
The phones are those of ali.*.gz with final.mdl. Writes <out-dir>/phone_lm.fst, or the file that is named, whose name ends in .fst; it is what
training makes of the same tree directory with --chain.lm-opts of the same options. chain-make-den-fst makes den.fst of it.
Options:
  --ngram-order <n>           # order of the model (4)
  --no-prune-ngram-order <n>  # the order whose n-grams are all kept (3)
  --num-extra-lm-states <n>   # states above those of the order that is kept (1000)
  --cmd <command>             # how to run the job (run.pl)
EOF
}

cmd=run.pl ngram_order=4 no_prune_ngram_order=3 num_extra_lm_states=1000
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 2 ]; then usage >&2; exit 1; fi
ali=$1 fst=$2
case $fst in *.fst) ;; *) fst=$fst/phone_lm.fst ;; esac
for f in "$ali"/{final.mdl,ali.1.gz}; do
  [ -f "$f" ] || { . missing.sh make_phone_lm.sh "$f"; exit 1; }
done
log=$(dirname "$fst")/log/make_phone_lm.log

$cmd "$log" pykaldist make-phone-lm --ngram-order "$ngram_order" --no-prune-ngram-order "$no_prune_ngram_order" \
  --num-extra-lm-states "$num_extra_lm_states" "$ali" "$fst" || exit 1
echo "make_phone_lm.sh: $(sed -n 's/^SUMMARY: //p' "$log"); phone language model in $fst"
