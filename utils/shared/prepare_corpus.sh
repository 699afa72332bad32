# Sourced by a recipe's local/prepare_data.sh, after the defaults of its options: reads them, and has prepare_corpus.
#   . prepare_corpus.sh || exit 1
#   prepare_corpus [<option> ...] <corpus>   # runs `pykaldist prepare-corpus` into data, and prints what it made; --corpus is handed on
. parse_options.sh || exit 1
[ $# = 0 ] || { usage >&2; exit 1; }
. say_what.sh

prepare_corpus() {
  local messages line
  messages=$(pykaldist prepare-corpus --corpus="$corpus" --fetch-dir corpus "$@" data) || end_with $?
  while IFS= read -r line; do echo "prepare_data.sh: $line"; done <<< "$messages"
}
