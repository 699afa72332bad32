#!/usr/bin/env bash
# Makes MFCC and pitch features of a data directory, in jobs.

usage() {
  cat <<EOF
Usage: steps/make_mfcc_pitch.sh [options] <data> [<log-dir> [<mfcc-pitch-dir>]]
 e.g.: steps/make_mfcc_pitch.sh --nj 4 data/train exp/make_mfcc_pitch/train mfcc_pitch
Writes <data>/feats.scp, utt2num_frames and utt2dur; the archives go to <mfcc-pitch-dir>. (Default: <data>/log and <data>/data.)
Up to 1 % of the utterances may be unusable: they are left out and named.
Options:
  --mfcc-config <file>    # Kaldi's options, one --option=value a line (conf/mfcc.conf)
  --pitch-config <file>   # likewise for the pitch (conf/pitch.conf)
  --pitch-postprocess-config <file>   # likewise for what is made of the pitch (conf/pitch_process.conf where there is one)
  --paste-length-tolerance <n>    # frames by which the two may differ (2)
  --nj <n>                # jobs (2)
  --cmd <command>         # how to run them (run.sh)
  --channel <n>           # channel to read, from 0; -1 expects mono (-1)
  --compress true|false   # one byte a value (false)
  --seed <n>              # of the dither (0)
EOF
}

mfcc_config=conf/mfcc.conf nj=2 cmd=run.sh channel=-1 compress=false seed=0
pitch_config=conf/pitch.conf pitch_postprocess_config="" paste_length_tolerance=2
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# -lt 1 ] || [ $# -gt 3 ]; then usage >&2; exit 1; fi
data=$1 log_dir=${2:-$1/log} mfcc_pitch_dir=${3:-$1/data}
[ -f "$mfcc_config" ] || { echo "make_mfcc_pitch.sh: ERROR: no config $mfcc_config; write one, or give --mfcc-config." >&2; exit 1; }
[ -f "$pitch_config" ] || { echo "make_mfcc_pitch.sh: ERROR: no config $pitch_config; write one, or give --pitch-config." >&2; exit 1; }
[ -n "$pitch_postprocess_config" ] || [ ! -f conf/pitch_process.conf ] || pitch_postprocess_config=conf/pitch_process.conf
validate_data_dir.sh --no-text --no-feats "$data" > /dev/null || exit 1

rm -f "$data"/{feats.scp,cmvn.scp,utt2num_frames,utt2dur}  # of features that are about to be replaced
$cmd JOB=1:"$nj" "$log_dir/make_mfcc_pitch.JOB.log" pykaldist make-feats --kind mfcc_pitch --feats-config "$mfcc_config" \
  --job JOB --nj "$nj" --pitch-config "$pitch_config" ${pitch_postprocess_config:+--pitch-postprocess-config "$pitch_postprocess_config"} \
  --paste-length-tolerance "$paste_length_tolerance" --channel "$channel" --compress "$compress" --seed "$seed" \
  "$data" "$mfcc_pitch_dir" || exit 1
made=$(pykaldist collect-feats --kind mfcc_pitch --nj "$nj" "$data" "$mfcc_pitch_dir") || exit 1
echo "make_mfcc_pitch.sh: $made"
