#!/usr/bin/env bash
# Makes a phone language model of the unknown word from a dictionary's pronunciations, for prepare_lang.sh --unk-fst.
cmd=run.pl
ngram_order=4
num_extra_ngrams=10000
position_dependent_phones=true
use_pocolm=true
min_word_length=2
phone_disambig_symbol="#1"
stage=0

usage() {
  cat <<EOF
Usage: utils/lang/make_unk_lm.sh [options] <dict-dir> <work-dir>
 e.g.: utils/lang/make_unk_lm.sh data/local/dict exp/unk_lang_model
       utils/prepare_lang.sh --unk-fst exp/unk_lang_model/unk_fst.txt data/local/dict '<unk>' data/local/lang_unk data/lang_unk
<work-dir>/unk_fst.txt takes sequences of phones whose neighbours are neighbours in some pronunciation of the dictionary. A word outside the
lexicon is then recognised as the unknown word by phones that it may have, and not as a noise.
Options:
  --ngram-order <n>                         # order of the model, 2 to 7 (default $ngram_order)
  --num-extra-ngrams <n>                    # at most so many n-grams beside the unigrams (default $num_extra_ngrams)
  --position-dependent-phones (true|false)  # mark phones with their place in the word (default $position_dependent_phones)
  --min-word-length (1|2)                   # least number of phones of a word (default $min_word_length)
  --phone-disambig-symbol <symbol>          # what arcs that back off take (default $phone_disambig_symbol)
  --use-pocolm (true|false)                 # Kaldi's choice of two estimators; here it is modified Kneser-Ney for both
  --cmd <runner>                            # how the job runs (default $cmd)
EOF
}

[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
[ $# = 2 ] || { usage >&2; exit 1; }
dict=$1 dir=$2
: "$use_pocolm" "$stage"  # Kaldi's options without an effect here

$cmd "$dir/log/make_unk_lm.log" pykaldist make-unk-lm --ngram-order "$ngram_order" --num-extra-ngrams "$num_extra_ngrams" \
  --position-dependent-phones "$position_dependent_phones" --min-word-length "$min_word_length" \
  --phone-disambig-symbol="'$phone_disambig_symbol'" "$dict" "$dir" || exit 1
echo "make_unk_lm.sh: $(grep ' arcs in ' "$dir/log/make_unk_lm.log" | tail -n 1)"
