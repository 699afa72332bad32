#!/usr/bin/env bash
# Compares the word error rates of two scored decodings by the bootstrap.

usage() {
  cat <<END
Usage: steps/scoring/score_kaldi_compare.sh [options] <scoring-dir> <other-scoring-dir> <dir>
 e.g.: steps/scoring/score_kaldi_compare.sh exp/tri3/decode/scoring_kaldi exp/tri4/decode/scoring_kaldi exp/tri4/compared_with_tri3
Both have test_filt.txt and best_wer, as steps/score_kaldi.sh writes them. <dir>/wer_bootci_comparison has both rates with their intervals of
95 %, and how probable it is that the other decoding is better.
Options:
  --cmd <command>      # how to run the job (run.pl)
  --replications <n>   # how many test sets are drawn (10000)
END
}

cmd=run.pl replications=10000
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
[ $# = 3 ] || { usage >&2; exit 1; }
dir=$3
best=()
for scored in "$1" "$2"; do
  for file in "$scored"/{test_filt.txt,best_wer}; do
    [ -f "$file" ] || { echo "score_kaldi_compare.sh: ERROR: $file does not exist; score first: steps/score_kaldi.sh data/test $(dirname "$(dirname "$scored")")/graph $(dirname "$scored")" >&2; exit 1; }
  done
  point=$(awk '{sub(/.*\/wer_/, "", $NF); print $NF}' "$scored/best_wer")  # weight and penalty of the best rate
  best+=("$scored/penalty_${point#*_}/${point%_*}.txt")
  [ -f "${best[-1]}" ] || { echo "score_kaldi_compare.sh: ERROR: ${best[-1]} does not exist; score again: steps/score_kaldi.sh data/test $(dirname "$(dirname "$scored")")/graph $(dirname "$scored")" >&2; exit 1; }
done

$cmd "$dir/log/score_compare.log" compute-wer-bootci --replications="$replications" "ark:$1/test_filt.txt" "ark:${best[0]}" "ark:${best[1]}" \
  ">" "$dir/wer_bootci_comparison" || exit 1
echo "score_kaldi_compare.sh: $(tail -n 1 "$dir/wer_bootci_comparison")"
