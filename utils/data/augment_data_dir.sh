#!/usr/bin/env bash
# Copies a data directory into other rooms (impulse responses) and with noise, by lhotse; the audio is written.

usage() {
  cat <<EOF
Usage: utils/data/augment_data_dir.sh [options] <data> <new-data> <audio-dir>
 e.g.: utils/data/augment_data_dir.sh --rirs RIRS_NOISES/simulated_rirs --noises musan/noise data/train data/train_aug aug
Each recording gets one of the impulse responses and one of the noises, drawn by the seed and its name; it stays as long as it was, so that
segments and alignments hold. Names begin with aug-. utt2uniq says what each utterance is a copy of.
Options:
  --rirs <dir>       # impulse responses (wav, flac) at the speech's rate, such as those of OpenSLR 28 ("": none)
  --noises <dir>     # noises, such as those of OpenSLR 17 ("": none)
  --snrs <dB,dB>     # signal-to-noise ratios, of which each recording gets one (15,10,5)
  --prefix <name>    # what names begin with (aug)
  --seed <n>         # of what each recording gets (0)
  --nj <n>           # threads (4)
EOF
}

rirs="" noises="" snrs=15,10,5 prefix=aug seed=0 nj=4
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
[ $# = 3 ] || { usage >&2; exit 1; }
. say_what.sh
message=$(pykaldist augment-data-dir --rirs="$rirs" --noises="$noises" --snrs="$snrs" --prefix "$prefix" --seed "$seed" --nj "$nj" "$@") ||
  end_with $?
echo "augment_data_dir.sh: $message"
