#!/usr/bin/env bash
# Makes data/train_swbd, data/train_fisher, the test sets and data/local/dict of both, from packages of the Linguistic Data Consortium.

usage() {
  cat <<EOF
Usage: local/prepare_data.sh [options] <corpus>
 e.g.: local/prepare_data.sh --sets "train_swbd train_fisher eval2000 rt03" /corpora/LDC
<corpus> has the packages' folders: LDC97S62 (Switchboard-1 release 2), LDC2004S13, LDC2004T19, LDC2005S13, LDC2005T19 (Fisher, speech and
transcripts), LDC2002S09 and LDC2002T43 (Hub5 2000), LDC2007S10 (RT-03). Folders that are elsewhere have options. Mississippi State's
transcripts are looked for below LDC97S62, else fetched from OpenSLR (number 5). Words of Fisher that their dictionary lacks are pronounced
by their letters where they are acronyms, else by a letter-to-sound model of it. What was left out is listed in data/local/train_*.
Options:
  --sets <list>                  # of train_swbd, train_fisher, eval2000, eval2001, rt03 ("$sets")
  --min-count <n>                # how often a word of Fisher has to be said to get into the lexicon ($min_count)
  --swbd, --transcripts, --ldc2004s13, --ldc2004t19, --ldc2005s13, --ldc2005t19, --eval2000, --eval2000-transcripts, --rt03 <dir>
EOF
}

sets="train_swbd train_fisher eval2000 rt03" min_count=2 swbd="" transcripts="" eval2000="" eval2000_transcripts="" rt03=""
ldc2004s13="" ldc2004t19="" ldc2005s13="" ldc2005t19=""
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
[ $# = 1 ] || { usage >&2; exit 1; }
. say_what.sh
messages=$(pykaldist prepare-swbd --tables local --sets "$sets" --min-count "$min_count" --swbd="$swbd" --transcripts="$transcripts" \
  --eval2000="$eval2000" --eval2000-transcripts="$eval2000_transcripts" --rt03="$rt03" --ldc2004s13="$ldc2004s13" \
  --ldc2004t19="$ldc2004t19" --ldc2005s13="$ldc2005s13" --ldc2005t19="$ldc2005t19" "$1" data) || end_with $?
while IFS= read -r line; do echo "prepare_data.sh: $line"; done <<< "$messages"
