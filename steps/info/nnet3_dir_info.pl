#!/usr/bin/env bash
# Prints what nnet3 models came to, a line each: epochs, workers, parameters, log-probabilities on training and held-out data.

usage() {
  cat <<EOF
Usage: steps/info/nnet3_dir_info.pl <exp-dir> [<exp-dir> ...]
 e.g.: steps/info/nnet3_dir_info.pl exp/nnet3/tdnn
Reads history.jsonl, config.json and final.mdl of steps/nnet3/train_dnn.py's folders. Of the chain objective a log-probability is that of numerator over
denominator, of cross-entropy that of the targets, of a frame.
EOF
}

[ -f path.sh ] && . ./path.sh
case "${1:-}" in --help | -h) usage; exit 0 ;; "") usage >&2; exit 1 ;; esac
exec pykaldist network-info "$@"
