# Sourced by recipe.sh for --dry-run true: run.sh goes on, and what it would run is printed in place of being run.
# Before each command bash runs the trap below, and skips the command where that is not successful (`shopt -s extdebug`). Only commands by
# which a recipe does something are skipped and shown, with their arguments; what run.sh itself computes goes on. A command whose last
# argument, which is what it makes, exists already is marked.
would_run() {
  local word line
  case $1 in
    *" > "* | *" < "*) printf '  %s\n' "$1"; return 1 ;;  # files that may not be there yet
    steps/* | utils/* | local/* | pykaldist\ *) ;;
    *) return 0 ;;
  esac
  declare -a words="($1)"  # expands the recipe's own words, as running the command would
  for word in "${words[@]}"; do
    case $word in "" | *[!A-Za-z0-9_./,=:+@%-]*) word="\"$word\"" ;; esac
    line+=" $word"
  done
  word=${words[-1]}
  [[ $word != */* ]] || [ ! -e "$word" ] || line+="   # $word is there"
  printf ' %s\n' "$line"
  return 1
}
say_next() { :; }  # what to try next comes behind a run
trap 'echo "Nothing was run. --stage <n> begins later; a training that was stopped goes on where it was."' EXIT
set +e  # a command that is skipped has status 1
shopt -s extdebug
trap 'would_run "$BASH_COMMAND"' DEBUG
