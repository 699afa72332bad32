#!/usr/bin/env bash
# Aligns a data directory with an nnet3 network, such as a chain model.

usage() {
  cat <<EOF
Usage: steps/nnet3/align.sh [options] <data-dir> <lang-dir> <src-dir> <ali-dir>
 e.g.: steps/nnet3/align.sh --nj 4 --use-gpu false --scale-opts "--transition-scale=1.0 --acoustic-scale=1.0 --self-loop-scale=1.0" \\
         data/train_hires data/lang_chain exp/chain/tdnn exp/chain/tdnn_ali
Writes ali.*.gz, a transition-id for each of the network's outputs, and copies of its model, tree and frame_subsampling_factor, to <ali-dir>.
Options:
  --nj <n>                  # jobs, no more than utterances (4)
  --cmd <command>           # how to run them (run.pl)
  --use-gpu true|false      # the network computes on a GPU (true as in Kaldi, where there is one)
  --scale-opts <options>    # of alignment ("--transition-scale=1.0 --acoustic-scale=0.1 --self-loop-scale=0.1"; chain models: all 1.0)
  --beam <beam>, --retry-beam <beam>   # of the alignment, and where an utterance does not reach its end (10, 40)
  --iter <iteration>        # <iteration>.mdl in place of final.mdl
  --online-ivector-dir <dir>  # i-vectors of <data-dir> (extract_ivectors_online.sh), for a network that takes them
  --frames-per-chunk <n>    # frames of features that share an i-vector, or that a recurrent network begins anew with (50)
  --extra-left-context, --extra-right-context, --extra-left-context-initial, --extra-right-context-final <n>   # frames more that
                            # a recurrent network goes through around a chunk (0, 0, -1, -1)
Not here: --graphs-scp.
EOF
}

nj=4 cmd=run.pl use_gpu=true beam=10 retry_beam=40 iter=final scale_opts="--transition-scale=1.0 --acoustic-scale=0.1 --self-loop-scale=0.1"
online_ivector_dir="" graphs_scp="" frames_per_chunk=50 extra_left_context=0 extra_right_context=0 extra_left_context_initial=-1
extra_right_context_final=-1
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 4 ]; then usage >&2; exit 1; fi
data=$1 lang=$2 src=$3 dir=$4
. nnet3_alignment.sh

rm -f "$dir"/ali.*.gz
copy_model
align_transcripts alignments "${network[@]}" --alignments alone --beam="$beam" --retry-beam="$retry_beam" $scale_opts
