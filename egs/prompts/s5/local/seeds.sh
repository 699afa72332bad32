#!/usr/bin/env bash
# Runs the recipe from its GMMs on with several seeds, and prints each system's mean WER and spread.
seeds="1 2 3 4 5"
run_opts=""

usage() {
  cat <<EOF
Usage: local/seeds.sh [options] <dir>
 e.g.: local/seeds.sh --seeds "1 2 3" seeds                   # after run.sh; half an hour on two cores
       local/seeds.sh --run-opts "--stage 4 --ngpu 1" seeds1  # only the network again, with one worker, on the alignments that are there
Runs run.sh, stages 2 to 7, with --seed, and keeps the scored decode directories of each seed, without lattices, in <dir>/<seed>. A seed
that is there is not run again. What exp/ has afterwards is the last seed's.
Options:
  --seeds <list>            # the seeds ($seeds)
  --run-opts <options>      # more for run.sh
EOF
}

[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
[ $# = 1 ] || { usage >&2; exit 1; }
dir=$1
for seed in $seeds; do
  [ ! -d "$dir/$seed" ] || continue
  ./run.sh --stage 2 --stop-stage 7 --seed "$seed" $run_opts || exit 1
  rm -rf "$dir/.$seed" && mkdir -p "$dir/.$seed" || exit 1
  for decode in exp/*/decode exp/*/decode_dev; do
    mkdir -p "$dir/.$seed/${decode#exp/}" && cp -r "$decode"/{wer_*,best_wer,scoring_kaldi} "$dir/.$seed/${decode#exp/}/" || exit 1
    [ ! -f "$decode/dev_chosen_wer" ] || cp "$decode/dev_chosen_wer" "$dir/.$seed/${decode#exp/}/"
  done
  cp exp/dnn/history.jsonl "$dir/.$seed/dnn/" && mv "$dir/.$seed" "$dir/$seed" || exit 1
done
pykaldist report $(for seed in $seeds; do echo "$dir/$seed"; done)
