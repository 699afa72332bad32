#!/usr/bin/env bash
# Makes data/{train,dev,test} and data/local/dict of a language of Common Voice, and data/local/sizes, which go with its hours of speech.

usage() {
  cat <<EOF
Usage: local/prepare_data.sh [options] --corpus <dir> --language <code>
 e.g.: local/prepare_data.sh --corpus /corpora/cv-corpus-17.0-2024-03-15 --language tr
       local/prepare_data.sh --corpus /corpora/cv-corpus-17.0-2024-03-15 --language de --lexicon lexicon.txt
<dir> has a folder for the language, with train.tsv, dev.tsv, test.tsv and clips/. Clips are written as FLAC at 16 kHz to data/local/audio.
What is left out, and why, stands in data/local/left_out.txt.
Options:
  --lexicon graphemes|<file>   # letters as phones, or a word and its phones on each line; words that it lacks: by its letters and sounds
EOF
}

corpus="" language="" lexicon=graphemes
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
[ $# = 0 ] && [ -n "$language" ] || { usage >&2; exit 1; }
. say_what.sh
messages=$(pykaldist prepare-commonvoice --language "$language" --lexicon="$lexicon" "$corpus" data) || end_with $?
while IFS= read -r line; do echo "prepare_data.sh: $line"; done <<< "$messages"
