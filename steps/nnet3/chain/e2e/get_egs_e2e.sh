#!/usr/bin/env bash
# Says what takes the place of examples on disk: steps/nnet3/chain/e2e/train_e2e.py takes whole utterances out of packed features while it trains.

usage() {
  cat <<EOF
Usage: steps/nnet3/chain/e2e/get_egs_e2e.sh [options] <data-dir> <chain-dir> <graphs-dir> <egs-dir>
 e.g.: steps/nnet3/chain/e2e/get_egs_e2e.sh data/train_hires exp/chain/e2e exp/chain/e2e_tree exp/chain/e2e/egs
Writes nothing, and takes all of the options of Kaldi's script: steps/nnet3/chain/e2e/train_e2e.py makes chunks and numerators itself, of --feat-dir
and --tree-dir; leave its --egs.dir out.
EOF
}

case "${1:-}" in --help | -h) usage; exit 0 ;; "") usage >&2; exit 1 ;; esac
echo "get_egs_e2e.sh: examples are not written to disk here; steps/nnet3/chain/e2e/train_e2e.py --feat-dir ... --tree-dir ... takes whole" \
  "utterances out of packed features while it trains (leave its --egs.dir out)"
