#!/usr/bin/env bash
# Makes data/{train,test} and data/local/dict of Asterisk's English voice prompts.

usage() {
  cat <<EOF
Usage: local/prepare_data.sh [--corpus <dir>]
 e.g.: local/prepare_data.sh --corpus /usr/share/asterisk/sounds
The corpus is that of <dir>; else /usr/share/asterisk/sounds; else fetched into corpus/, as Debian packages (no root) or as the
public tarball. Every eighth prompt by sorted name is for testing. The dictionary has the words of all prompts, for a telephone system
knows what it says; local/lexicon_extra.txt has the pronunciations that cmudict lacks. The language model is estimated later, on the
training prompts only: words that only test prompts have get their share of the unigrams' mass.
EOF
}

corpus=""
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
[ $# = 0 ] || { usage >&2; exit 1; }
. say_what.sh

messages=$(pykaldist prepare-corpus --corpus="$corpus" --fetch-dir corpus --extra-lexicon local/lexicon_extra.txt prompts data) || exit 1
while IFS= read -r line; do echo "prepare_data.sh: $line"; done <<< "$messages"
