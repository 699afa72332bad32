#!/usr/bin/env bash
# Copies a data directory with its utterances at other speeds beside them: three times the data, other voices.

usage() {
  cat <<EOF
Usage: utils/perturb_data_dir_speed_3way.sh [--factors "0.9 1.1"] <data> <new-data>
 e.g.: utils/perturb_data_dir_speed_3way.sh data/train data/train_sp
The copies' names begin with sp0.9- and sp1.1-. No audio is written: features are then made with steps/make_mfcc.sh, which resamples as
reco2speed says. utt2uniq says what each is a copy of: steps/nnet/pack.sh trains on no copy of a held-out utterance.
EOF
}

factors="0.9 1.1"
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
[ $# = 2 ] || { usage >&2; exit 1; }
message=$(pykaldist perturb-speed --factors "$factors" "$@") || end_with $?
echo "perturb_data_dir_speed_3way.sh: $message"
