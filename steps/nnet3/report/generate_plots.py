#!/usr/bin/env bash
# Draws the course of training of nnet3 experiments: a picture of each measure, on training and held-out data, against epochs.

usage() {
  cat <<EOF
Usage: steps/nnet3/report/generate_plots.py [options] <exp-dir> [<exp-dir> ...] <output-dir>
 e.g.: steps/nnet3/report/generate_plots.py --is-chain true exp/chain/tdnn exp/chain/report
Writes <output-dir>/loss.png, xent.png or acc.png, as the objective has it, and info.txt, a line about each experiment.
Options of Kaldi's script, taken: all that is measured is drawn
  --is-chain true|false, --start-iter, --output-nodes, --comparison-dir <dir> (one experiment more)
EOF
}

[ -f path.sh ] && . ./path.sh
others=() is_chain=false start_iter=1 output_nodes=output
while [[ ${1:-} == --* ]]; do
  case $1 in
    --help) usage; exit 0 ;;
    --is-chain | --start-iter | --output-nodes) ;;
    --comparison-dir) others+=("${2:-}") ;;
    *) echo "generate_plots.py: ERROR: there is no option $1." >&2; exit 1 ;;
  esac
  [ $# -ge 2 ] || { echo "generate_plots.py: ERROR: option $1 needs a value." >&2; exit 1; }
  shift 2
done
if [ $# -lt 2 ]; then usage >&2; exit 1; fi
exec pykaldist network-info --plots "${!#}" "${@:1:$#-1}" "${others[@]}"
