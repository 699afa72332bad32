#!/usr/bin/env bash
# Prints what chain (LF-MMI) models came to, a line each: epochs, workers, parameters, log-probabilities on training and held-out data.

usage() {
  cat <<EOF
Usage: steps/info/chain_dir_info.pl <exp-dir> [<exp-dir> ...]
 e.g.: steps/info/chain_dir_info.pl exp/chain/tdnn
Reads history.jsonl, config.json and final.mdl of steps/nnet3/chain/train.py's folders. Of the chain objective a log-probability is that of numerator over
denominator, of cross-entropy that of the targets, of a frame.
EOF
}

[ -f path.sh ] && . ./path.sh
case "${1:-}" in --help | -h) usage; exit 0 ;; "") usage >&2; exit 1 ;; esac
exec pykaldist network-info "$@"
