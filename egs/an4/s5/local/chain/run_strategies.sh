#!/usr/bin/env bash
# Trains the chain model by strategies of many virtual workers, several seeds each, one after the other. After run_tdnn.sh, stages 0 and 1.

usage() {
  cat <<EOF
Usage: local/chain/run_strategies.sh [options]
 e.g.: nice -n 15 local/chain/run_strategies.sh --runs "ma10 bmuf" --workers 4
Each result is a line of <dir>/results: run, workers, seed, WER, held-out loss. What is there is not made again, so the command can be stopped
and run again. At the end the mean of each run's seeds is printed, as a table.
Options:
  --runs <names>           # of: one ma1 ma10 kaldi bmuf adpsgd ("$runs")
  --workers <numbers>      # of each run but one, which has one worker ("$workers")
  --seeds <numbers>        # ("$seeds")
  --num-epochs <n>         # each over the data three times, with another frame shift ($num_epochs)
  --train-opts <options>   # of all runs ("$train_opts")
  --dir <dir>              # exp/chain/strategies
  --cmd <command>
EOF
}

cd "$(dirname "$0")/../.." || exit 1
. ./cmd.sh
runs="one ma10 ma1 kaldi bmuf adpsgd" workers="4 16" seeds="0 1 2" num_epochs=6 train_opts="--dtype bf16 --num-threads 1"
dir=exp/chain/strategies
. ./path.sh
. parse_options.sh || exit 1
[ $# = 0 ] || { usage >&2; exit 1; }
set -e
mkdir -p "$dir"
touch "$dir/results"

options_of() {  # <run>: what it exchanges, and when
  case $1 in
    one) echo --strategy ma ;;
    ma1) echo --strategy ma --average-period 1 ;;
    ma10) echo --strategy ma --average-period 10 ;;
    kaldi) echo --strategy ma --trainer.frames-per-iter 60000 ;;  # of each worker; with more, 16 workers would hardly average
    bmuf) echo --strategy bmuf --average-period 10 ;;
    adpsgd) echo --strategy adpsgd ;;
    *) echo "run_strategies.sh: ERROR: there is no run $1; --help lists them." >&2; return 1 ;;
  esac
}

train_and_score() {  # <run> <workers> <seed>
  local options loss wer exp=$dir/$1_$2_$3
  options=$(options_of "$1")
  local/chain/run_tdnn.sh --cmd "$cmd" --stage 2 --dir "$exp" --ngpu "$2" --seed "$3" --num-epochs "$num_epochs" --use-gpu no --nj 1 \
    --train-opts "--fabric virtual $options $train_opts" > "$exp.log" 2>&1 ||
    { echo "run_strategies.sh: ERROR: $1 with $2 workers and seed $3 failed; see $exp.log" >&2; return 1; }
  wer=$(sed -n 's/^%WER \([0-9.]*\).*/\1/p' "$exp/decode/scoring_kaldi/best_wer")
  loss=$(sed -n 's/.*"cv_loss": \([0-9.]*\).*/\1/p' "$exp/history.jsonl" | tail -n 1)
  echo "$1 $2 $3 $wer $loss" | tee -a "$dir/results"
}

for seed in $seeds; do
  for run in $runs; do
    for n in $([ "$run" = one ] && echo 1 || echo "$workers"); do
      grep -q "^$run $n $seed " "$dir/results" || train_and_score "$run" "$n" "$seed"
    done
  done
done

echo "| run | workers | seeds | WER, mean | WER of each | held-out loss, mean |"
echo "| --- | --- | --- | --- | --- | --- |"
sort -k1,1 -k2,2n -k3,3n "$dir/results" | awk '
  { key = $1 " | " $2; if (!(key in n)) order[++keys] = key; n[key]++; wer[key] += $4; loss[key] += $5; each[key] = each[key] " " $4 }
  END { for (i = 1; i <= keys; i++) { k = order[i]; printf "| %s | %d | %.2f |%s | %.4f |\n", k, n[k], wer[k] / n[k], each[k], loss[k] / n[k] } }'
