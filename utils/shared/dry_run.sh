# Sourced by recipe.sh for --dry-run true: run.sh goes on, and what it would run is printed in place of being run.
# Before each command bash runs the trap below, and skips the command where that is not successful (`shopt -s extdebug`). Only commands by
# which a recipe does something are skipped and shown, with their arguments; what run.sh itself computes goes on. What is there already, and
# what a command is expected to take, `pykaldist expected-times` adds.
would_run() {
  case $1 in
    *" > "* | *" < "*) printf '  %s\n' "$1"; return 1 ;;  # files that may not be there yet
    steps/* | utils/* | local/* | pykaldist\ *) ;;
    *) return 0 ;;
  esac
  declare -a words="($1)"  # expands the recipe's own words, as running the command would
  printf '%s\x1f' "${words[@]}"
  echo
  return 1
}
say_next() { :; }  # what to try next comes behind a run
exec {terminal}>&1 > >(pykaldist expected-times)
expected=$!
trap 'exec >&"$terminal"; wait $expected
      echo "Nothing was run. --stage <n> begins later; a training that was stopped goes on where it was."' EXIT
set +e  # a command that is skipped has status 1
shopt -s extdebug
trap 'would_run "$BASH_COMMAND"' DEBUG
