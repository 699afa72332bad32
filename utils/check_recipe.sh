#!/usr/bin/env bash
# Checks which lines of a Kaldi recipe are accepted here, by reading its run.sh and local/ scripts; nothing of it is run.
only_run=false
table=false

usage() {
  cat <<EOF
Usage: utils/check_recipe.sh [options] <run.sh> ...
 e.g.: utils/check_recipe.sh egs/mycorpus/s5/run.sh
Prints each call of a script of steps/ or utils/ that is not accepted, with its line and the reason: there is no such script, it has no
such option, it takes other arguments, or it belongs to what is not here yet; then programs that are not on PATH, and the sums.
Exit status 0 where every call is accepted.
Options:
  --only-run true|false   # leave the scripts of local/ out (default $only_run)
  --table true|false      # print only a Markdown table of the recipes (default $table)
EOF
}

[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
[ $# -ge 1 ] || { usage >&2; exit 1; }
pykaldist check-recipe --only-run "$only_run" --table "$table" "$@"
