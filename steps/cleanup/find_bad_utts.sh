#!/usr/bin/env bash
# Lists the utterances in which speech and transcript differ, the worst first.
stage=-1
cmd=run.pl
nj=4
cleanup=true
transform_dir=
top_n_words=100
beam=15.0
lattice_beam=8.0
max_active=750
acoustic_scale=0.1

usage() {
  cat <<EOF
Usage: steps/cleanup/find_bad_utts.sh [options] <data-dir> <lang-dir> <src-dir> <dir>
 e.g.: steps/cleanup/find_bad_utts.sh --nj 20 --cmd "\$train_cmd" data/train data/lang exp/tri3b exp/tri3b_debug
Decodes as steps/cleanup/clean_and_segment_data.sh, each utterance with the language model of its own transcript. Writes to <dir>
all_info.sorted.txt: utterance, errors, words of the transcript, what was said, what is written, with tabs between; the same in the order of
utterances, all_info.txt; and analysis/per_utt_details.txt, per_spk_details.txt, ops_details.txt.
Options:
  --nj <n>                    # jobs of decoding (default $nj)
  --cmd <command>             # how to run them (default run.pl)
  --stage <n>                 # above 1: the decoding is there (default $stage)
  --transform-dir <dir>       # the speakers' fMLLR transforms (default: those of <src-dir>, where it has trans.*)
  --top-n-words <n>           # so many of the corpus's most frequent words are in each model (default $top_n_words)
  --beam, --lattice-beam, --max-active <x>   # of the decoding ($beam, $lattice_beam, $max_active)
  --acoustic-scale <scale>    # of the log-likelihoods in it (default $acoustic_scale)
  --cleanup true|false        # remove the edits of single jobs in the end (default $cleanup)
EOF
}

[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 4 ]; then usage >&2; exit 1; fi
data=$1 lang=$2 src=$3 dir=$4
name=find_bad_utts.sh
. biased_decoding.sh

if [ "$stage" -le 1 ]; then
  decode_biased --beam "$beam" --lattice-beam "$lattice_beam" --max-active "$max_active" --acwt "$acoustic_scale" \
    --top-n-words "$top_n_words" --min-words-per-graph 1 || exit 1
fi
$cmd "$dir/log/bad_utts.log" pykaldist bad-utts "$data" "$dir" || exit 1
[ "$cleanup" = false ] || rm -f "$dir"/ctm_edits.[0-9]*
echo "$name: $(sed -n 's/^SUMMARY: //p' "$dir/log/bad_utts.log"); see $dir/all_info.sorted.txt"
