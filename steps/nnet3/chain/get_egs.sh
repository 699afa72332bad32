#!/usr/bin/env bash
# Says what takes the place of examples on disk: steps/nnet3/chain/train.py cuts chunks out of packed features while it trains.

usage() {
  cat <<EOF
Usage: steps/nnet3/chain/get_egs.sh [options] <data-dir> <chain-dir> <lattice-dir> <egs-dir>
 e.g.: steps/nnet3/chain/get_egs.sh data/train_hires exp/chain/tdnn exp/tri3_lats exp/chain/tdnn/egs
Writes nothing, and takes all of the options of Kaldi's script: steps/nnet3/chain/train.py makes chunks and numerators itself, of --feat-dir and
--lat-dir, with --egs.chunk-width, --chain.left-tolerance and the like; leave its --egs.dir out.
EOF
}

case "${1:-}" in --help | -h) usage; exit 0 ;; "") usage >&2; exit 1 ;; esac
echo "get_egs.sh: examples are not written to disk here; steps/nnet3/chain/train.py --feat-dir ... --lat-dir ... cuts chunks out of packed features" \
  "while it trains (leave its --egs.dir out)"
