#!/usr/bin/env bash
# Runs the recipe from its GMMs on with several seeds, the network with several numbers of workers, and prints mean WERs and their spread.
seeds="1 2 3 4 5"
ngpus="4 1"
run_opts=""
alone="--num-epochs 3"

usage() {
  cat <<EOF
Usage: local/seeds.sh [options] <dir>
 e.g.: local/seeds.sh seeds                            # after run.sh; 40 minutes on two cores
       local/seeds.sh --seeds "1 2 3" --ngpus 4 seeds
Runs run.sh, stages 2 to 7, with --seed; then the network again, stages 5 to 7, with each other number of workers, on the same alignments and
RBMs. Keeps the scored decode directories, without lattices, in <dir>/ngpu<n>/<seed>. What is there is not run again. What exp/ has
afterwards is of the last run.
Options:
  --seeds <list>            # the seeds ($seeds)
  --ngpus <list>            # workers in training ($ngpus)
  --alone <options>         # for steps/nnet/train.sh with one worker, which has no serial warm-up: as many epochs in all ($alone)
  --run-opts <options>      # more for run.sh
EOF
}

[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
[ $# = 1 ] || { usage >&2; exit 1; }
dir=$1
for seed in $seeds; do
  stage=2
  for ngpu in $ngpus; do
    to=$dir/ngpu$ngpu/$seed
    [ ! -d "$to" ] || continue
    train_opts=""; [ "$ngpu" != 1 ] || train_opts=$alone
    ./run.sh --stage $stage --stop-stage 7 --seed "$seed" --ngpu "$ngpu" --train-opts "$train_opts" $run_opts || exit 1
    stage=5
    rm -rf "$to.part" && mkdir -p "$to.part" || exit 1
    for decode in exp/{mono,tri1,dnn}/{decode,decode_dev}; do
      mkdir -p "$to.part/${decode#exp/}" && cp -r "$decode"/{wer_*,best_wer,scoring_kaldi} "$to.part/${decode#exp/}/" || exit 1
      [ ! -f "$decode/dev_chosen_wer" ] || cp "$decode/dev_chosen_wer" "$to.part/${decode#exp/}/"
    done
    cp exp/dnn/history.jsonl "$to.part/dnn/" && mv "$to.part" "$to" || exit 1
  done
done
for ngpu in $ngpus; do
  echo "The network with $ngpu workers:"
  pykaldist report $(for seed in $seeds; do echo "$dir/ngpu$ngpu/$seed"; done)
done
