# Sourced by recipe.sh where --work-dir is among a run.sh's options: goes on as the run.sh of that folder, which gets links to the recipe's own
# files, and where data, features and experiments go. So a checkout that nobody may write in serves everybody, and a recipe several experiments.
recipe=$(cd "$(dirname "$0")" && pwd) work_dir="" rest=()
while [ $# -gt 0 ]; do
  case $1 in
    --work-dir) work_dir=${2:-}; shift; [ $# = 0 ] || shift ;;
    --work-dir=*) work_dir=${1#*=}; shift ;;
    *) rest+=("$1"); shift ;;
  esac
done
case $work_dir in "" | -*) echo "run.sh: ERROR: --work-dir expects a folder; run.sh --help says what for." >&2; exit 1 ;; esac
mkdir -p "$work_dir" || { echo "run.sh: ERROR: $work_dir cannot be made; name a folder where you may write." >&2; exit 1; }
for file in cmd.sh conf local path.sh run.sh steps utils; do
  [ -e "$work_dir/$file" ] || [ ! -e "$recipe/$file" ] || ln -s "$(readlink -f "$recipe/$file")" "$work_dir/$file" \
    || { echo "run.sh: ERROR: nothing can be written in $work_dir; name a folder where you may write." >&2; exit 1; }
done
[ "$work_dir/run.sh" -ef "$recipe/run.sh" ] \
  || { echo "run.sh: ERROR: $work_dir is that of another recipe (its run.sh is not $recipe's); name another folder." >&2; exit 1; }
exec "$work_dir/run.sh" "${rest[@]}"
