#!/usr/bin/env bash
# Pretrains a stack of RBMs on a frame store. Run again with the same options it resumes; with others it starts clean.

usage() {
  cat <<EOF
Usage: steps/nnet/pretrain_dbn.sh [options] <store-dir> <exp-dir>
 e.g.: steps/nnet/pretrain_dbn.sh --hid-layers 4 --hid-dim 512 exp/dnn/store exp/dbn
       steps/nnet/train.sh --hid-layers 4 --hid-dim 512 --dbn exp/dbn exp/dnn/store exp/dnn
Writes <exp-dir>/dbn.pt, the same as nnet1's <layer>.rbm, <layers>.dbn and final.feature_transform, history.jsonl, config.json and
log/pretrain_dbn.log. While it runs, rbm<layer>/ckpt holds the checkpoints.
Options are those of \`pykaldist pretrain-dbn\` (\`pykaldist pretrain-dbn --help\` lists all), the first ones being
  --hid-layers, --hid-dim, --splice
  --rbm-iter <n>           # epochs of a Bernoulli-Bernoulli RBM; the first, Gaussian-Bernoulli one has twice as many (1)
  --rbm-lrate <rate>       # of Bernoulli-Bernoulli RBMs (0.4)
  --rbm-lrate-low <rate>   # of the Gaussian-Bernoulli RBM (0.01)
  --rbm-l2penalty, --cd-steps, --param-stddev, --minibatch-size
  --device <name>          # cpu, cuda, cuda:N or auto (auto)
and
  --cmd <command>          # how to run (run.sh)
EOF
}

cmd=run.sh
[ -f path.sh ] && . ./path.sh
options=()
while [[ ${1:-} == --* ]]; do
  case $1 in
    --help) usage; exit 0 ;;
    --cmd=*) cmd=${1#*=}; shift; continue ;;
    --*=*) options+=("$1"); shift; continue ;;
  esac
  [ $# -ge 2 ] || { echo "pretrain_dbn.sh: ERROR: option $1 needs a value." >&2; exit 1; }
  if [ "$1" = --cmd ]; then cmd=$2; else options+=("$1" "$2"); fi
  shift 2
done
[ $# = 2 ] || { usage >&2; exit 1; }
store=$1 exp=$2
for f in "$store/train/manifest.json" "$store/dev/manifest.json"; do
  [ -f "$f" ] || { echo "pretrain_dbn.sh: ERROR: no file $f; run steps/nnet/pack.sh first." >&2; exit 1; }
done

log=$exp/log/pretrain_dbn.log
[ ! -f "$log" ] || mv "$log" "${log%.log}.before.log"  # of a run that this one resumes, say
$cmd "$log" pykaldist pretrain-dbn "${options[@]}" "$store" "$exp" || exit 1
echo "pretrain_dbn.sh: $(grep "^rbm.*: epoch\|is already there" "$log" | tail -n 1)"
echo "pretrain_dbn.sh: stack in $exp/dbn.pt"
