# Sourced by run.sh and run_*.sh: the language models of LibriSpeech, $lms beside tgsmall, which the decoding graph has; and lattices with each.

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

# decode_all: by a network beside the DNN, in $exp, lattices and word error rates of every test set, with the models that run.sh had
decode_all() {
  local test lm lms="" ali_dir=""
  [ "$ali" != exp/ali ] || ali_dir=$ali
  for lm in tgmed tglarge fglarge; do [ ! -d "$(lang_of $lm)" ] || lms+=" $lm"; done
  for test in "$data"/{dev,test}_*; do
    [ -d "$test" ] || continue
    test=${test##*/}
    steps/decode.sh --skip-scoring true --nj "$nj" --cmd "$cmd" --device "$device" --forward-opts "$forward_opts" "$graph" "$data/$test" \
      "$exp/decode_tgsmall_$test"
    rescore "$exp" "$test"
    score_all "$exp" "$test"
  done
}
