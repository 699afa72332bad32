#!/usr/bin/env bash
# Makes data/train, the test sets and data/local/dict of Switchboard, from the packages of the Linguistic Data Consortium.

usage() {
  cat <<EOF
Usage: local/prepare_data.sh [options] <corpus>
 e.g.: local/prepare_data.sh --sets "train eval2000 rt03" /corpora/LDC
<corpus> has the packages' folders: LDC97S62 (Switchboard-1 release 2), LDC2002S09 and LDC2002T43 (Hub5 2000: speech, transcripts),
LDC2002S13 (Hub5 2001), LDC2007S10 (RT-03). Folders that are elsewhere, or of other names, have options. Mississippi State's transcripts are
looked for below LDC97S62, else fetched from OpenSLR (number 5). Says what was left out, and writes lists of it into data/local/train.
Options:
  --sets <list>                  # of train, eval2000, eval2001, rt03 ("$sets")
  --swbd <dir>, --transcripts <dir>, --eval2000 <dir>, --eval2000-transcripts <dir>, --eval2001 <dir>, --rt03 <dir>
EOF
}

sets="train eval2000" swbd="" transcripts="" eval2000="" eval2000_transcripts="" eval2001="" rt03=""
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
[ $# = 1 ] || { usage >&2; exit 1; }
. say_what.sh
messages=$(pykaldist prepare-swbd --tables local --sets "$sets" --swbd="$swbd" --transcripts="$transcripts" --eval2000="$eval2000" \
  --eval2000-transcripts="$eval2000_transcripts" --eval2001="$eval2001" --rt03="$rt03" "$1" data) || end_with $?
while IFS= read -r line; do echo "prepare_data.sh: $line"; done <<< "$messages"
