#!/usr/bin/env bash
# Word error rates of a decode directory, at every language model weight and word insertion penalty.
cmd=run.pl
min_lmwt=4
max_lmwt=20
word_ins_penalty=0.0,0.5,1.0
dev_dir=

usage() {
  cat <<EOF
Usage: utils/score.sh [options] <data-dir> <lang-dir|graph-dir> <decode-dir>
 e.g.: utils/score.sh --min-lmwt 7 data/test exp/mono/graph exp/mono/decode
       utils/score.sh --dev-dir exp/mono/decode_dev data/test exp/mono/graph exp/mono/decode
Writes <decode-dir>/wer_<lmwt>_<wip>, best_wer, and details in scoring_kaldi/; nothing is decoded again. With --dev-dir, also
dev_chosen_wer: the WER at the weight and the penalty that were best on a development set; the details are then of these.
Options:
  --cmd <command>                # how to run the job (default $cmd)
  --min-lmwt <n>                 # lowest language model weight (default $min_lmwt)
  --max-lmwt <n>                 # highest (default $max_lmwt)
  --word-ins-penalty <p,p,...>   # word insertion penalties (default $word_ins_penalty)
  --dev-dir <dir>                # scored decode directory of a development set, by the same system
EOF
}

[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 3 ]; then usage >&2; exit 1; fi
data=$1 graph=$2 dir=$3

for file in "$data"/{text,utt2spk} "$graph/words.txt" "$dir/lat.1.gz"; do
  [ -f "$file" ] || { echo "score.sh: ERROR: $file does not exist." >&2; exit 1; }
done
$cmd "$dir/scoring_kaldi/log/score.log" pykaldist score --min-lmwt "$min_lmwt" --max-lmwt "$max_lmwt" \
  --word-ins-penalty="$word_ins_penalty" ${dev_dir:+--dev-dir "$dev_dir"} "$data" "$graph" "$dir" || exit 1
best=$dir/best_wer
[ -z "$dev_dir" ] || best=$dir/dev_chosen_wer
echo "score.sh: $(cat "$best")"
