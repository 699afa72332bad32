#!/usr/bin/env bash
# Makes a table of Su, Chen & Xu (2015): trains and scores what it needs, and prints the paper's values beside those obtained.
table="" exp=exp/tables sets="" run_opts="" train_opts="" schedule_opts="" show=false

usage() {
  cat <<EOF
Usage: local/tables.sh --table <1..6> [options]
 e.g.: local/tables.sh --table 6                        # after run.sh, stages 0 to 4: SGD beside NG-SGD, by 1 and 16 workers
       local/tables.sh --table 1 --show true            # the table as far as it has been run
Tables: 1 GPUs, 1 to 32   2 RBMs or random weights   3 averaging period 10 or 20   4 minibatches of 256 or 1,024
        5 newbob or exponential schedule   6 SGD or NG-SGD
Each run is run.sh, stages 5 to 7, into $exp/<run>; local/runs.tsv has their options. What has been scored is not run again.
Options:
  --sets <list>                # test sets (eval2000; for table 1 eval2000 and eval2001 where data/ has it)
  --run-opts <options>         # more for run.sh, such as "--device cuda --nj 32"
  --train-opts <options>       # more for steps/nnet/train.sh, behind those of the run
  --schedule-opts <options>    # in place of the schedule of every run
  --exp <dir>                  # folder of the runs ($exp)
  --show true|false            # train nothing, print the table (false)
EOF
}

cd "$(dirname "$0")/.." || exit 1
. ./path.sh
. parse_options.sh || exit 1
[[ $table =~ ^[1-6]$ && $# = 0 ]] || { usage >&2; exit 1; }
scored() { local set; for set in $sets; do [ -f "$1/decode_$set/best_wer" ] || return 1; done; }
runs=$(pykaldist paper-table --table "$table" --runs true local "$exp") || exit 1
if [ -z "$sets" ]; then
  sets=eval2000
  [ "$table" != 1 ] || [ ! -d data/eval2001 ] || sets="eval2000 eval2001"
fi
while IFS=$'\t' read -r name ngpu rbm schedule options; do
  if ! $show && ! scored "$exp/$name"; then
    echo "== table $table, run $name: $ngpu workers, RBMs $rbm"
    ./run.sh $run_opts --stage 5 --stop-stage 7 --sets "$sets" --dnn "$exp/$name" --ngpu "$ngpu" --rbm "$rbm" \
      --schedule-opts "${schedule_opts:-$schedule}" --train-opts "$options $train_opts" < /dev/null || exit 1
  fi
done <<< "$runs"
echo
echo "Table $table of Su, Chen & Xu (2015): WER in %, published and obtained here; speed-ups are of an epoch's seconds"
pykaldist paper-table --table "$table" local "$exp"
