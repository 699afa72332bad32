#!/usr/bin/env bash
# Makes a language directory from a dictionary directory.
position_dependent_phones=true
share_silence_phones=false
sil_prob=0.5
num_sil_states=5
num_nonsil_states=3
phone_symbol_table=
unk_fst=
extra_word_disambig_syms=
num_extra_phone_disambig_syms=1

usage() {
  cat <<EOF
Usage: utils/prepare_lang.sh [options] <dict-src-dir> <oov-dict-entry> <tmp-dir> <lang-dir>
 e.g.: utils/prepare_lang.sh data/local/dict '<UNK>' data/local/lang data/lang
<dict-src-dir> has lexicon.txt or lexiconp.txt, silence_phones.txt, nonsilence_phones.txt, optional_silence.txt and, if wanted,
extra_questions.txt. <oov-dict-entry> is the word of the lexicon that stands for words outside it. Where there are lexiconp_silprob.txt and
silprob.txt (utils/dict_dir_add_pronprobs.sh), they say how probable silence is around each word, and --sil-prob has no effect.
Options:
  --position-dependent-phones (true|false)  # mark phones with their place in the word (default $position_dependent_phones)
  --share-silence-phones (true|false)       # all silence phones share their pdfs (default $share_silence_phones)
  --sil-prob <p>                            # probability of the optional silence between words (default $sil_prob)
  --num-sil-states <n>                      # HMM states of a silence phone (default $num_sil_states)
  --num-nonsil-states <n>                   # HMM states of another phone (default $num_nonsil_states)
  --phone-symbol-table <phones.txt>         # phones get the numbers that they have there, as a model that is there needs them
  --unk-fst <unk_fst.txt>                   # phone language model in place of <oov-dict-entry>'s pronunciation (utils/lang/make_unk_lm.sh)
  --extra-word-disambig-syms <file>         # more symbols like #0 that pass from words to phones, a line each
  --num-extra-phone-disambig-syms <n>       # disambiguation symbols beside those of the lexicon (default $num_extra_phone_disambig_syms)
EOF
}

[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
[ $# = 4 ] || { usage >&2; exit 1; }
dict=$1 oov=$2 tmp=$3 lang=$4

made=$(pykaldist prepare-lang --position-dependent-phones "$position_dependent_phones" \
  --share-silence-phones "$share_silence_phones" --sil-prob "$sil_prob" --num-sil-states "$num_sil_states" \
  --num-nonsil-states "$num_nonsil_states" --unk-fst="$unk_fst" --extra-word-disambig-syms="$extra_word_disambig_syms" \
  --num-extra-phone-disambig-syms "$num_extra_phone_disambig_syms" \
  ${phone_symbol_table:+--phone-symbol-table "$phone_symbol_table"} "$dict" "$oov" "$tmp" "$lang") || end_with $?
echo "prepare_lang.sh: $made in $lang"
