#!/usr/bin/env bash
# Checks a language directory: symbol tables, lists of phones, topology, lexicon and grammar.

usage() {
  cat <<EOF
Usage: utils/validate_lang.pl [options] <lang-dir>
 e.g.: utils/validate_lang.pl data/lang_test
Exit status 0 if the directory is valid; else a sentence for each thing that is wrong.
Options:
  --skip-determinization-check   # do not determinise the lexicon with the grammar, which takes its time
  --skip-disambig-check          # #0 and #1 may be missing
  --skip-generate-words-check    # taken and not needed
EOF
}

[ -f path.sh ] && . ./path.sh
case "${1:-}" in --help | -h) usage; exit 0 ;; "") usage >&2; exit 1 ;; esac
. say_what.sh
message=$(pykaldist validate-lang "$@") || end_with $?
echo "validate_lang.pl: $message"
