# Sourced by a recipe's local/tables.sh, which makes a paper's tables: trains and scores what one needs, and prints it beside what was published.
#   paper="Su, Chen & Xu (2015)" tables="..." example=6   # lines of the usage text on the tables, and one of them
#   default_sets() { echo eval2000; }          # test sets of the table $table
#   more_options() { more=(--rbm "$2"); }      # of run.sh, for the run of a name, beside those below; RBMs as runs.tsv says
#   . "$(dirname "${BASH_SOURCE[0]}")/../utils/shared/tables.sh"
table="" exp=exp/tables sets="" run_opts="" train_opts="" schedule_opts="" show=false

usage() {
  cat <<EOF
Usage: local/tables.sh --table <table> [options]
 e.g.: local/tables.sh --table $example                        # after run.sh, stages 0 to 4
       local/tables.sh --table $example --show true            # the table as far as it has been run
Tables of $paper:
$tables
Each run is run.sh, stages 5 to 7, into $exp/<run>; local/runs.tsv has their options. What has been scored is not run again.
Options:
  --sets <list>                # test sets (those of the table that data/ has)
  --run-opts <options>         # more for run.sh, such as "--device cuda --nj 32"
  --train-opts <options>       # more for steps/nnet/train.sh, behind those of the run
  --schedule-opts <options>    # in place of the schedule of every run
  --exp <dir>                  # folder of the runs ($exp)
  --show true|false            # train nothing, print the table (false)
EOF
}

cd "$(dirname "${BASH_SOURCE[1]}")/.." || exit 1
. ./path.sh
. parse_options.sh || exit 1
[ -n "$table" ] && [ $# = 0 ] || { usage >&2; exit 1; }
scored() { local set; for set in $sets; do [ -f "$1/decode_$set/best_wer" ] || return 1; done; }
runs=$(pykaldist paper-table --table "$table" --runs true local "$exp") || exit 1
[ -n "$sets" ] || sets=$(default_sets)
while IFS=$'\t' read -r name ngpu rbm schedule options; do
  if ! $show && ! scored "$exp/$name"; then
    echo "== table $table, run $name: $ngpu workers, RBMs $rbm"
    more_options "$name" "$rbm"
    ./run.sh $run_opts --stage 5 --stop-stage 7 --sets "$sets" --dnn "$exp/$name" --ngpu "$ngpu" "${more[@]}" \
      --schedule-opts "${schedule_opts:-$schedule}" --train-opts "$options $train_opts" < /dev/null || exit 1
  fi
done <<< "$runs"
echo
echo "Table $table of $paper: WER in % where nothing else is said, published and obtained here; speed-ups are of an epoch's seconds"
pykaldist paper-table --table "$table" local "$exp"
