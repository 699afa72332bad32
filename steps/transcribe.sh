#!/usr/bin/env bash
# Transcribes recordings of your own with a finished model.

usage() {
  cat <<EOF
Usage: steps/transcribe.sh [options] <graph-dir> <model-dir> <audio-file> [<audio-file> ...]
 e.g.: steps/transcribe.sh exp/tri1/graph exp/dnn my_recording.wav
Prints each file's name and words. Works on every model that steps/decode.sh takes, and on those of speaker-adapted features, for which
it estimates fMLLR transforms first (not where a speaker has less than a second of speech). Nothing is left behind.
A recording may have a higher sampling rate than the model's, not a lower one.
With --stream true a chain model recognises while the audio comes, with a line for each utterance as it ends, and lines with ... at their
end for what is known of it before; <audio-file> - is 16-bit samples at the model's rate on standard input.
Options:
  --feats mfcc|plp|fbank   # features that the model was trained on (those of the recipe's conf that fit the model)
  --feats-config <file>    # their options, as in training
  --channel <n>            # channel to read, from 0; -1 expects mono ($channel)
  --one-speaker true|false # all files are of one speaker, for CMVN and adaptation, or each of its own ($one_speaker)
  --adapt-model <dir>      # speaker-adapted GMM that made a network's features (as the network's frame store says)
  --device <name>          # where a network computes: cpu, cuda, cuda:N or auto ($device)
  --beam <beam>            # of the search ($beam)
  --acwt <scale>           # of the log-likelihoods in the search (1 of chain models, else 0.083333)
  --lmwt <weight>          # of the language model, by which words are chosen (the best of the model's scored decode directories)
  --format <format>        # text, ctm, srt, vtt or json ($format)
  --out <folder>           # for a file a recording (all on standard output)
  --stream true|false      # recognise while the audio comes ($stream)
  --stream-opts <options>  # of pykaldist transcribe --stream: "--chunk-length 0.2 --endpoint.rule2.min-trailing-silence 0.8"
EOF
}

feats="" feats_config="" channel=-1 one_speaker=false adapt_model="" device=auto beam=13.0 acwt="" lmwt="" format=text out="" stream=false
stream_opts=""
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
. graph_fst.sh
if [ $# -lt 3 ]; then usage >&2; exit 1; fi
for file in "$(graph_fst "$1")" "$1/words.txt" "$2/final.mdl" "${feats_config:-$2/final.mdl}"; do
  [ -f "$file" ] || { echo "transcribe.sh: ERROR: $file does not exist." >&2; exit 1; }
done
graph=$1
shift
exec pykaldist transcribe --graph "$graph" --stream="$stream" $stream_opts ${feats:+--kind "$feats"} \
  ${feats_config:+--feats-config "$feats_config"} --channel "$channel" --one-speaker "$one_speaker" \
  ${adapt_model:+--adapt-model "$adapt_model"} --device "$device" --beam "$beam" ${acwt:+--acwt "$acwt"} ${lmwt:+--lmwt "$lmwt"} \
  --format "$format" ${out:+--out "$out"} "$@"
