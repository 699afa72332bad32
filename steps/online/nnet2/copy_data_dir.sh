#!/usr/bin/env bash
# Copies a data directory, with speakers of a few utterances each; utils/data/modify_speaker_info.sh and utils/copy_data_dir.sh do it.

usage() {
  cat <<EOF
Usage: steps/online/nnet2/copy_data_dir.sh [options] <data-dir> <new-data-dir>
 e.g.: steps/online/nnet2/copy_data_dir.sh --utts-per-spk-max 2 data/train data/train_max2
Options:
  --utts-per-spk-max <n>   # most utterances of a speaker; -1: as many as there are ($utts_per_spk_max)
EOF
}

utts_per_spk_max=-1
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 2 ]; then usage >&2; exit 1; fi
if [ "$utts_per_spk_max" = -1 ]; then
  exec copy_data_dir.sh "$1" "$2"
fi
exec "$PYKALDIST_ROOT/utils/data/modify_speaker_info.sh" --utts-per-spk-max "$utts_per_spk_max" "$1" "$2"
