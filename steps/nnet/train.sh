#!/usr/bin/env bash
# Trains a network on a frame store. Run again with the same options it resumes; with others it starts clean.

usage() {
  cat <<EOF
Usage: steps/nnet/train.sh [options] <store-dir> <exp-dir>
 e.g.: steps/nnet/train.sh --hid-layers 4 --hid-dim 512 exp/dnn/store exp/dnn
Writes <exp-dir>/final.pt, ali_train_pdf.counts, history.jsonl, config.json, ckpt/ and log/train.log.
Options are those of \`pykaldist train\` (\`pykaldist train --help\` lists all), the first ones being
  --ngpu <n>               # workers (1)
  --device <name>          # cpu, cuda, cuda:N or auto (auto)
  --hid-layers, --hid-dim, --activation, --splice, --dropout, --bottleneck-dim
  --init nnet1|glorot|he, --layerwise-epochs <n> (layer-wise pretraining), --dbn <dir> (of pretrain_dbn.sh)
  --objective xent|mse     # mse trains towards the store's target features
  --learn-rate, --momentum, --l2-penalty, --minibatch-size, --learn-rate-coefs, --bias-learn-rate-coef
  --schedule newbob|exponential|fixed|warmup, --newbob-on loss|accuracy, --num-epochs, --learn-rates, --warmup-epochs
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
  [ $# -ge 2 ] || { echo "train.sh: ERROR: option $1 needs a value." >&2; exit 1; }
  if [ "$1" = --cmd ]; then cmd=$2; else options+=("$1" "$2"); fi
  shift 2
done
[ $# = 2 ] || { usage >&2; exit 1; }
store=$1 exp=$2
for f in "$store/train/manifest.json" "$store/dev/manifest.json"; do
  [ -f "$f" ] || { echo "train.sh: ERROR: no file $f; run steps/nnet/pack.sh first." >&2; exit 1; }
done

[ ! -f "$exp/log/train.log" ] || mv "$exp/log/train.log" "$exp/log/train.before.log"  # of a run that this one resumes, say
$cmd "$exp/log/train.log" pykaldist train "${options[@]}" "$store" "$exp" || exit 1
epoch=$(grep "^epoch\|is already there" "$exp/log/train.log" | tail -n 1)
echo "train.sh: $epoch"
echo "train.sh: network in $exp/final.pt"
