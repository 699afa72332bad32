#!/usr/bin/env bash
# Writes a recipe for a corpus of your own, audio files and a table of transcripts, and runs it to a word error rate.

usage() {
  cat <<EOF
Usage: utils/new_recipe.sh [options] <name>
 e.g.: utils/new_recipe.sh mylang --audio recordings/ --transcripts transcripts.csv --lexicon graphemes
       utils/new_recipe.sh mylang --audio recordings/ --transcripts manifest.json --lexicon lexicon.txt --ngpu 4
Writes egs/<name>/s5 and runs its run.sh, which is yours to change: monophones, triphones, LDA+MLLT, speaker-adaptive training, a network
whose size goes with the hours of speech, decoding, scoring. What it finds is said: what is left out, speakers, words, sets.
Audio and transcripts are matched by paths or file names. With --lexicon graphemes each letter is a phone, in any script; words that a
lexicon lacks get their phones by a letter-to-sound model of it. The language model is a trigram of the training transcripts.
Options:
  --audio <dir>              # folder with the audio: wav, flac, sph, mp3, ogg, opus, in folders of any depth
  --transcripts <file>       # csv, tsv, JSON lines, Kaldi's text or data directory, NeMo's manifest, an audiofolder's metadata, lhotse's
                             # supervisions or cuts
  --lexicon <file>           # a word and its phones on each line; or the word graphemes
  --dir <dir>                # folder to write instead
  --run true|false           # whether it is run, or only written (true)
  --columns <list>           # columns that are not known by their names, such as "audio=path text=sentence speaker=who"
  --speakers auto|column|folder|recording   # where speakers are told: a column, else folders, else each recording has its own (auto)
  --shares <list>            # parts of the speech for training, development and testing, by speakers ("80 10 10")
  --language <code>          # for those whose small letters are others than elsewhere: tr, az
  --split-seed <n>           # of the order in which speakers come into the sets (0)
  --stage <n>, --nj <n>, --ngpu <n>   # for run.sh (0, the machine's cores, 1)
  --run-opts <options>       # more for run.sh, such as "--rbm false --seed 1"
EOF
}

audio="" transcripts="" lexicon="" dir="" run=true columns="" speakers=auto shares="80 10 10" language="" split_seed=0
stage=0 nj=$(nproc) ngpu=1 run_opts=""
[ -n "${PYKALDIST_ROOT:-}" ] || . "$(dirname "$(readlink -f "$0")")/../path.sh"
name=""
case ${1:-} in "" | -*) ;; *) name=$1; shift ;; esac  # the name may stand before the options
. parse_options.sh || exit 1
[ -n "$name" ] || { name=${1:-}; [ $# = 0 ] || shift; }
if [ -z "$name" ] || [ $# != 0 ]; then usage >&2; exit 1; fi
. say_what.sh
for option in audio transcripts lexicon; do
  [ -n "${!option}" ] || { echo "new_recipe.sh: ERROR: give --$option; new_recipe.sh --help says what it is." >&2; exit 1; }
done
[ -n "$dir" ] || dir=$PYKALDIST_ROOT/egs/$name/s5

messages=$(pykaldist new-recipe --root "$PYKALDIST_ROOT" --audio="$audio" --transcripts="$transcripts" --lexicon="$lexicon" \
  --columns="$columns" --speakers="$speakers" --shares="$shares" --language="$language" --split-seed="$split_seed" \
  "$name" "$dir") || end_with $?
while IFS= read -r line; do echo "new_recipe.sh: $line"; done <<< "$messages"
$run || { echo "new_recipe.sh: to run it: $dir/run.sh"; exit 0; }
# shellcheck disable=SC2086  # options
"$dir/run.sh" --stage "$stage" --nj "$nj" --ngpu "$ngpu" $run_opts
