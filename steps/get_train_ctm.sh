#!/usr/bin/env bash
# Word times (a CTM file) of the transcripts of an alignment directory.
cmd=run.pl
frame_shift=0.01
stage=0
use_segments=true
print_silence=false

usage() {
  cat <<EOF
Usage: steps/get_train_ctm.sh [options] <data-dir> <lang-dir> <ali-dir> [<output-dir>]
 e.g.: steps/get_train_ctm.sh data/train data/lang exp/tri3_ali
Writes ctm to <output-dir>, or to <ali-dir>: recording, channel, start, seconds, word.
Options:
  --cmd <command>              # how to run the job (default run.pl)
  --frame-shift <seconds>      # from frame to frame (default $frame_shift)
  --use-segments true|false    # times of the recordings where <data-dir> has segments (default $use_segments)
  --print-silence true|false   # lines of silence too, with the word <eps> (default $print_silence)
  --stage <n>                  # taken, as Kaldi's script does; all of it is one job
EOF
}

[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 3 ] && [ $# != 4 ]; then usage >&2; exit 1; fi
data=$1 lang=$2 ali=$3 dir=${4:-$3}

for file in "$data/text" "$lang"/{words.txt,oov.int,phones/align_lexicon.int} "$ali"/{final.mdl,ali.1.gz}; do
  [ -f "$file" ] || { . missing.sh get_train_ctm.sh "$file"; exit 1; }
done
$cmd "$dir/log/get_train_ctm.log" pykaldist get-train-ctm --frame-shift "$frame_shift" --use-segments "$use_segments" \
  --print-silence "$print_silence" "$data" "$lang" "$ali" "$dir" || exit 1
grep '^WARNING:' "$dir/log/get_train_ctm.log" | sed 's/^/get_train_ctm.sh: /' >&2
echo "get_train_ctm.sh: $(sed -n 's/^SUMMARY: //p' "$dir/log/get_train_ctm.log")"
