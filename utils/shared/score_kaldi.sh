# Sourced by steps/scoring/score_kaldi_{wer,cer}.sh, which set: unit, word or char, whose errors are counted.
name=${0##*/} rate=wer what=Word
[ $unit = word ] || rate=cer what=Character
example=steps/scoring/score_kaldi_$rate.sh
[ "$name" != score_kaldi.sh ] || example=steps/score_kaldi.sh

usage() {
  cat <<EOF
Usage: $example [options] <data-dir> <lang-dir|graph-dir> <decode-dir>
 e.g.: $example --min-lmwt 7 data/test exp/mono/graph exp/mono/decode
$what error rates at every language model weight and word insertion penalty. Writes <decode-dir>/${rate}_<lmwt>_<wip>, best_$rate, and
scoring_kaldi/: best_$rate, hypotheses (penalty_<wip>/<lmwt>.txt), references (test_filt.txt), and ${rate}_details/{per_utt,per_spk,ops,
${rate}_bootci,lmwt,wip} of the best point. Nothing is decoded again. Where a recipe has the program local/wer_output_filter, references and
hypotheses go through it, lines of <utterance> <word>...; through local/wer_ref_filter and wer_hyp_filter, the ones and the others.
Options:
  --cmd <command>                # how to run the job (run.pl)
  --stage <n>                    # 0: hypotheses from the lattices, and all; from 1: those that are there (0)
  --min-lmwt <n>                 # lowest language model weight (7)
  --max-lmwt <n>                 # highest (17)
  --word-ins-penalty <p,p,...>   # word insertion penalties (0.0,0.5,1.0)
  --decode-mbr true|false        # hypotheses with the least expected number of errors, in place of best paths (false)
  --beam <beam>                  # of lattices, with --decode-mbr (6)
  --stats true|false             # write the details of the best point (true)
  --widen true|false             # where the lowest error rate stands at an edge of the sweep, go on beyond it, and say so (true)
  --ref-filtering-cmd, --hyp-filtering-cmd <command>   # filters other than those of local/
EOF
  if [ $unit = word ]; then cat <<EOF
  --dev-dir <dir>                # scored decode directory of a development set, by the same system: dev_chosen_wer is the WER at the
                                 # weight and the penalty that were best there, and the details are of these
EOF
  else cat <<EOF
Words are cut into characters, but for those such as <unk> and [noise]; by the program local/character_tokenizer where a recipe has it.
EOF
  fi
}

cmd=run.pl stage=0 min_lmwt=7 max_lmwt=17 word_ins_penalty=0.0,0.5,1.0 stats=true widen=true decode_mbr=false beam=6 iter=final dev_dir=""
ref_filtering_cmd="" hyp_filtering_cmd="" character_tokenizer=""
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 3 ]; then usage >&2; exit 1; fi
data=$1 graph=$2 dir=$3
for file in "$data"/{text,utt2spk} "$graph/words.txt" "$dir/lat.1.gz"; do
  [ -f "$file" ] || { . missing.sh "$name" "$file"; exit 1; }
done
# filter_of KIND GIVEN: the command that references (ref) or hypotheses (hyp) go through
filter_of() {
  if [ -n "$2" ]; then echo "$2"
  elif [ -x "local/wer_$1_filter" ]; then echo "local/wer_$1_filter"
  elif [ -x local/wer_output_filter ]; then echo local/wer_output_filter; fi
}
ref_filtering_cmd=$(filter_of ref "$ref_filtering_cmd") hyp_filtering_cmd=$(filter_of hyp "$hyp_filtering_cmd")
[ ! -x local/character_tokenizer ] || character_tokenizer=local/character_tokenizer

$cmd "$dir/scoring_kaldi/log/score_$rate.log" pykaldist score --unit $unit --stage "$stage" --min-lmwt "$min_lmwt" --max-lmwt "$max_lmwt" \
  --word-ins-penalty="$word_ins_penalty" --stats="$stats" --widen="$widen" --decode-mbr="$decode_mbr" --beam "$beam" \
  ${dev_dir:+--dev-dir "$dev_dir"} \
  ${ref_filtering_cmd:+--ref-filtering-cmd "$ref_filtering_cmd"} ${hyp_filtering_cmd:+--hyp-filtering-cmd "$hyp_filtering_cmd"} \
  ${character_tokenizer:+--character-tokenizer "$character_tokenizer"} "$data" "$graph" "$dir" || exit 1
best=$dir/best_$rate
[ -z "$dev_dir" ] || best=$dir/dev_chosen_wer
echo "$name: $(cat "$best")"
