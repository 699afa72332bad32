# Sourced by run.sh: the language models of LibriSpeech, $lms beside tgsmall, which the decoding graph has; and lattices with each of them.

# lang_of LM: the language directory of the systems that are decoded, with a language model
lang_of() { local own=data/lang; [ -z "$ali_dir" ] || own=data/lang_nosp; echo "${own}_$1"; }

# format_lms LANG LEXICON: G.fst of the pruned models, G.carpa of those that are too large for it
format_lms() {
  local lang=$1 lexicon=$2 lm
  for lm in tgsmall $lms; do
    case $lm in
      *large) utils/build_const_arpa_lm.sh "data/local/lm_$lm.arpa.gz" "$lang" "${lang}_$lm" ;;
      *) utils/format_lm.sh "$lang" "data/local/lm_$lm.arpa.gz" "$lexicon" "${lang}_$lm" ;;
    esac
  done
}

# rescore EXP TEST: EXP/decode_<lm>_TEST from EXP/decode_tgsmall_TEST
rescore() {
  local exp=$1 test=$2 lm how
  for lm in $lms; do
    how=lmrescore.sh
    [[ $lm != *large ]] || how=lmrescore_const_arpa.sh
    steps/$how --cmd "$cmd" --skip-scoring true "$(lang_of tgsmall)" "$(lang_of "$lm")" "data/$test" "$exp/decode_tgsmall_$test" \
      "$exp/decode_${lm}_$test"
  done
}

# score_all EXP TEST: word error rates by every model
score_all() {
  local exp=$1 test=$2 lm
  for lm in tgsmall $lms; do
    steps/score_kaldi.sh --cmd "$cmd" --min-lmwt 7 --max-lmwt 20 "data/$test" "$graph" "$exp/decode_${lm}_$test"
  done
}
