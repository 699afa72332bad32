# Sourced by scripts after they set their defaults: `--some-option value` (or =value) sets $some_option.
# --help prints the script's own usage() (or $help_message); --config FILE is sourced first. An option whose variable the script has not
# set is an error: nothing is ignored. Every script takes `--deterministic true` (pykaldist/deterministic.py), and so do those that it
# calls. Numbers of jobs and stages, and options that are true or false by default, are checked here.
# The script's positional arguments are what is left; what the script does is said (say_what.sh). Usage: . utils/parse_options.sh || exit 1

__show_usage() {
  if declare -F usage >/dev/null; then usage; else printf '%s\n' "${help_message:-"$0: no help"}"; fi
  [ -z "${PYKALDIST_LIST_OPTIONS:-}" ] || { echo; echo "variables:"; compgen -v; }  # for check_recipe.sh
}
# The option in the usage text that is nearest to an unknown one, by edits, where no more than a third of its letters are others.
__nearest_option() {
  __show_usage 2>&1 | grep -oE -- '--[a-z][a-zA-Z0-9._-]*' | sort -u | awk -v word="$1" '
    function least(a, b, c) { return a < b ? (a < c ? a : c) : (b < c ? b : c) }
    { n = length(word); m = length($0)
      for (j = 0; j <= m; j++) row[j] = j
      for (i = 1; i <= n; i++) {
        diagonal = row[0]; row[0] = i
        for (j = 1; j <= m; j++) {
          above = row[j]
          row[j] = least(above + 1, row[j - 1] + 1, diagonal + (substr(word, i, 1) != substr($0, j, 1)))
          diagonal = above
        }
      }
      if (3 * row[m] <= n - 2 && (best == "" || row[m] < edits)) { best = $0; edits = row[m] }
    }
    END { print best }'
}
printf -v PYKALDIST_COMMAND '%q ' "$0" "$@"
export PYKALDIST_COMMAND=${PYKALDIST_COMMAND% }  # for the record of what is made (pykaldist/io/provenance.py)
while true; do
  case "${1:-}" in
    --help | -h) __show_usage; exit 0 ;;
    --) shift; break ;;
    --*=*) __option=${1%%=*} __value=${1#*=}; shift ;;
    --*)
      __option=$1
      if [ $# -lt 2 ]; then echo "$0: ERROR: option $1 needs a value." >&2; exit 1; fi
      __value=$2; shift 2 ;;
    *) break ;;
  esac
  __name=${__option#--}; __name=${__name//-/_}
  if [ "$__name" = config ]; then
    if [ ! -r "$__value" ]; then echo "$0: ERROR: no config file $__value." >&2; exit 1; fi
    . "$__value"; continue
  fi
  [ "$__name" != deterministic ] || deterministic=${deterministic:-false}
  if ! [[ $__name =~ ^[a-zA-Z][a-zA-Z0-9_]*$ ]] || [ -z "${!__name+set}" ]; then
    __nearest=$(__nearest_option "$__option")
    echo "$0: ERROR: there is no option $__option${__nearest:+, the nearest is $__nearest}; $0 --help lists them." >&2; exit 1
  fi
  case "$__name=${!__name}" in
    nj=* | ngpu=*) __kind="a number from 1 up" __form='^[1-9][0-9]*$' ;;
    stage=* | stop_stage=*) __kind="a whole number" __form='^-?[0-9]+$' ;;
    "$__name=true" | "$__name=false") __kind="true or false" __form='^(true|false)$' ;;
    *) __kind="" __form='' ;;
  esac
  if [ -n "$__form" ] && ! [[ $__value =~ $__form ]]; then
    echo "$0: ERROR: option $__option takes $__kind, found '$__value'." >&2; exit 1
  fi
  printf -v "$__name" '%s' "$__value"
done
[ "${deterministic:-false}" = false ] || export PYKALDIST_DETERMINISTIC=true
unset __option __name __value __kind __form
__shared=${BASH_SOURCE[0]%/*}/shared
[ -z "${cmd:-}" ] || . "$__shared/own_runner.sh"
[ $# = 0 ] || { . "$__shared/say_what.sh"; . "$__shared/guard.sh"; }  # without arguments most scripts print their usage
