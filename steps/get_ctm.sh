#!/usr/bin/env bash
# Word times and confidences (CTM files) of a decode directory, at every language model weight.
cmd=run.pl
min_lmwt=4
max_lmwt=15
frame_shift=

usage() {
  cat <<EOF
Usage: steps/get_ctm.sh [options] <data-dir> <lang-dir|graph-dir> <decode-dir>
 e.g.: steps/get_ctm.sh data/test exp/mono/graph exp/mono/decode_test
Writes <decode-dir>/score_<lmwt>/<name of data-dir>.ctm: recording, channel, start, seconds, word, confidence. Times are those of the
recordings where <data-dir> has segments. The model is final.mdl in the parent of <decode-dir>.
Options:
  --cmd <command>              # how to run the job (default run.pl)
  --min-lmwt <n>               # lowest language model weight (default $min_lmwt)
  --max-lmwt <n>               # highest (default $max_lmwt)
  --frame-shift <seconds>      # from frame to frame (default 0.01, times the model's frame_subsampling_factor)
EOF
}

[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 3 ]; then usage >&2; exit 1; fi
data=$1 lang=$2 dir=$3

for file in "$data/utt2spk" "$lang"/{words.txt,phones/align_lexicon.int} "$dir"/{lat.1.gz,../final.mdl}; do
  [ -f "$file" ] || { . missing.sh get_ctm.sh "$file"; exit 1; }
done
$cmd "$dir/scoring_kaldi/log/get_ctm.log" pykaldist get-ctm --min-lmwt "$min_lmwt" --max-lmwt "$max_lmwt" \
  ${frame_shift:+--frame-shift "$frame_shift"} "$data" "$lang" "$dir" || exit 1
echo "get_ctm.sh: $dir/score_*/$(basename "$data").ctm"
