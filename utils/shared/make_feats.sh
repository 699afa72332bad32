# Sourced by steps/make_*.sh, which say what they make: kind=mfcc, fbank, plp, or one of these with _pitch behind; and online, which is not
# empty where the pitch has one file of options.
base=${kind%_pitch} name=make_$kind${online:+_online}

usage() {
  local dir=${kind//_/-} config
  printf -v config -- "--$base-config <file>%$((8 - ${#base}))s"
  cat <<EOF
Usage: steps/$name.sh [options] <data> [<log-dir> [<$dir-dir>]]
 e.g.: steps/$name.sh --nj 4 data/train exp/$name/train $kind
Writes <data>/feats.scp, utt2num_frames and utt2dur; the archives go to <$dir-dir>. (Default: <data>/log and <data>/data.)
Up to 1 % of the utterances may be unusable: they are left out and named.
Options:
  $config# Kaldi's options, one --option=value a line (conf/$base.conf)
EOF
  [ -z "$online" ] || cat <<EOF
  --online-pitch-config <file>    # likewise for the pitch and what is made of it (conf/online_pitch.conf)
  --paste-length-tolerance <n>    # frames by which pitch and the rest may differ (2)
EOF
  [ "$base" = "$kind" ] || [ -n "$online" ] || cat <<EOF
  --pitch-config <file>   # likewise for the pitch (conf/pitch.conf)
  --pitch-postprocess-config <file>   # likewise for what is made of the pitch (conf/pitch_process.conf where there is one)
  --paste-length-tolerance <n>    # frames by which the two may differ (2)
EOF
  cat <<EOF
  --nj <n>                # jobs; no more than utterances (2)
  --cmd <command>         # how to run them (run.pl)
  --channel <n>           # channel to read, from 0; -1 expects mono (-1)
  --compress true|false   # one byte a value (false)
  --seed <n>              # of the dither (0)
  --write-utt2num-frames true|false, --write-utt2dur true|false   # leave out the table where it is false (true)
EOF
}

declare "${base}_config=conf/$base.conf"
nj=2 cmd=run.pl channel=-1 compress=false seed=0 write_utt2num_frames=true write_utt2dur=true
[ "$base" = "$kind" ] || { pitch_config=conf/pitch.conf pitch_postprocess_config="" paste_length_tolerance=2; }
[ -z "$online" ] || online_pitch_config=conf/online_pitch.conf
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# -lt 1 ] || [ $# -gt 3 ]; then usage >&2; exit 1; fi
data=$1 log_dir=${2:-$1/log} feats_dir=${3:-$1/data}
config=${base}_config config=${!config} pitch=()
[ -f "$config" ] || { echo "$name.sh: ERROR: no config $config; write one, or give --$base-config." >&2; exit 1; }
if [ -n "$online" ]; then
  file=$online_pitch_config
  [ -f "$file" ] || { echo "$name.sh: ERROR: no config $file; write one, or give --online-pitch-config." >&2; exit 1; }
  pitch=(--online-pitch-config "$file" --paste-length-tolerance "$paste_length_tolerance")
elif [ "$base" != "$kind" ]; then
  [ -f "$pitch_config" ] || { echo "$name.sh: ERROR: no config $pitch_config; write one, or give --pitch-config." >&2; exit 1; }
  [ -n "$pitch_postprocess_config" ] || [ ! -f conf/pitch_process.conf ] || pitch_postprocess_config=conf/pitch_process.conf
  pitch=(--pitch-config "$pitch_config" --paste-length-tolerance "$paste_length_tolerance")
  [ -z "$pitch_postprocess_config" ] || pitch+=(--pitch-postprocess-config "$pitch_postprocess_config")
fi
validate_data_dir.sh --no-text --no-feats "$data" > /dev/null || exit 1
. fewer_jobs.sh
fewer_jobs "$data" utterances

rm -f "$data"/{feats.scp,cmvn.scp,utt2num_frames,utt2dur}  # of features that are about to be replaced
$cmd JOB=1:"$nj" "$log_dir/$name.JOB.log" pykaldist make-feats --kind "$kind" --feats-config "$config" --job JOB --nj "$nj" \
  "${pitch[@]}" --channel "$channel" --compress "$compress" --seed "$seed" "$data" "$feats_dir" || exit 1
made=$(pykaldist collect-feats --kind "$kind" --nj "$nj" "$data" "$feats_dir") || end_with $?
[ "$write_utt2num_frames" = true ] || rm -f "$data/utt2num_frames"
[ "$write_utt2dur" = true ] || rm -f "$data/utt2dur"
echo "$name.sh: $made"
