#!/usr/bin/env bash
# Makes a data directory of the parts of utterances in which speech and transcript agree.
stage=0
cmd=run.pl
nj=4
cleanup=true
graph_opts=
segmentation_opts=
beam=15.0
lattice_beam=6.0
acwt=0.083333

usage() {
  cat <<EOF
Usage: steps/cleanup/clean_and_segment_data.sh [options] <data-dir> <lang-dir> <src-dir> <dir> <cleaned-data-dir>
 e.g.: steps/cleanup/clean_and_segment_data.sh data/train data/lang exp/tri3 exp/tri3_cleanup data/train_cleaned
<src-dir> has a GMM system and, where it is a speaker-adapted one, transforms (trans.*) of the speakers of <data-dir>: give what aligned it.
Decodes utterances, a few at a time, with a language model of their transcripts and the corpus's most frequent words; takes the path of
each lattice that is nearest to the transcript; and cuts at errors. <cleaned-data-dir> gets segments, text, features and CMVN statistics;
its utterances are <utterance>-1, <utterance>-2, ... <dir> gets ctm_edits.segmented, which shows what was cut, word_stats.txt with the words
that were lost most often first, segments and text. Repetitions and noises that were said and are not written are put into the text.
Options:
  --nj <n>                        # jobs of decoding (default $nj)
  --cmd <command>                 # how to run them (default run.pl)
  --stage <n>                     # above 2: the decoding is there; above 7: the segments too (default $stage)
  --graph-opts <options>          # of the language models: "--top-n-words 100 --top-n-words-weight 1.0 --min-words-per-graph 100
                                  # --ngram-order 4 --min-lm-state-count 10 --discounting-constant 0.3", which are the defaults
  --segmentation-opts <options>   # such as "--min-segment-length 0.3 --min-new-segment-length 0.6" (0.5 and 1.0);
                                  # pykaldist segment-edits --help lists them
  --beam, --lattice-beam, --acwt <x>  # of the decoding ($beam, $lattice_beam, $acwt)
  --cleanup true|false            # remove the edits of single jobs in the end (default $cleanup)
EOF
}

[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 5 ]; then usage >&2; exit 1; fi
data=$1 lang=$2 src=$3 dir=$4 cleaned=$5
name=clean_and_segment_data.sh
. biased_decoding.sh

if [ "$stage" -le 2 ]; then decode_biased --beam "$beam" --lattice-beam "$lattice_beam" --acwt "$acwt" $graph_opts || exit 1; fi
if [ "$stage" -le 7 ]; then
  $cmd "$dir/log/segment_edits.log" pykaldist segment-edits $segmentation_opts "$data" "$lang" "$dir" "$cleaned" || exit 1
fi
"$(dirname "$0")/../compute_cmvn_stats.sh" --cmd "$cmd" "$cleaned" "$cleaned/log" "$cleaned/data" || exit 1
[ "$cleanup" = false ] || rm -f "$dir"/ctm_edits.[0-9]*
echo "$name: $(sed -n 's/^SUMMARY: //p' "$dir/log/segment_edits.log") in $cleaned"
