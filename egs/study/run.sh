#!/usr/bin/env bash
# Does the trainings that the study of claims lacks, the most urgent ones first, and writes its page, RESULTS.md.
an4="" an4_recipe="" speechocean762="" claim="" nj=1 max_minutes="" dry_run=false evidence=false dir=exp

usage() {
  cat <<EOF
Usage: egs/study/run.sh [options]
 e.g.: egs/study/run.sh --dry-run true                            # what is missing, and what it will cost
       nice egs/study/run.sh --an4 DIR --nj 2 --max-minutes 60
Trains the cells of claims/*.json that results/ lacks, on the corpora that are named. It can be ended at any moment, and goes on when it is
run again. A training that fails is tried once more, named at the end, and tried again by the next call.
Options:
  --an4 <dir>               # AN4 as Kaldi prepared it: data/, fmllr/, tri3_ali/, graph_tri3/ (corpora.json says which files)
  --an4-recipe <dir>        # egs/an4/s5 after stages 0 to 2, for sequence training; for LSTMs and CNNs also after
                            # stage 3 and local/run_cnn.sh --stop-stage 0, for chain models after local/chain/run_tdnn.sh --stop-stage 2
  --speechocean762 <dir>    # egs/speechocean762/s5 after the same stages with --speakers all
  --claim <names>           # claims to examine, with commas between (all)
  --nj <n>                  # trainings at a time, each on one core ($nj)
  --max-minutes <n>         # begin no training after so many minutes (no limit)
  --dry-run true|false      # say what is missing and what it will cost, and do nothing ($dry_run)
  --evidence true|false     # train ten cells again, and compare them with the results that there are; 15 minutes ($evidence)
  --dir <dir>               # for frame stores, logs and trainings under way ($dir)
EOF
}

here=$PWD
cd "$(dirname "$0")" || exit 1
. ../../path.sh
. parse_options.sh || exit 1
[ $# = 0 ] && [ -n "$an4$an4_recipe$speechocean762" -o "$dry_run" = true ] || { usage >&2; exit 1; }

corpora=""
add() {  # <name of corpora.json> <its folder>
  [ -z "$2" ] || corpora+=",$1=$(cd "$here" && realpath -m "$2")"
}
add an4 "$an4"
for kind in mono fbank chain; do add an4_$kind "$an4_recipe"; done
for name in speechocean762 speechocean762_chain; do add $name "$speechocean762"; done
exec pykaldist study --corpora "${corpora#,}" --claim "$claim" --nj "$nj" ${max_minutes:+--max-minutes "$max_minutes"} --dry-run "$dry_run" \
  --evidence "$evidence" . "$dir"
