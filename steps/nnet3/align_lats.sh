#!/usr/bin/env bash
# Aligns a data directory with an nnet3 network into lattices, which hold alternative pronunciations of the transcripts.

usage() {
  cat <<EOF
Usage: steps/nnet3/align_lats.sh [options] <data-dir> <lang-dir> <src-dir> <lat-dir>
 e.g.: steps/nnet3/align_lats.sh --nj 4 --scale-opts "--transition-scale=1.0 --self-loop-scale=1.0" --acoustic-scale 1.0 \\
         data/train_hires data/lang_chain exp/chain/tdnn exp/chain/tdnn_lats
Writes lat.*.gz, and copies of the network's model, tree and frame_subsampling_factor, to <lat-dir>.
Options:
  --nj <n>                  # jobs, no more than utterances (4)
  --cmd <command>           # how to run them (run.pl)
  --scale-opts <options>    # of the graphs ("--transition-scale=1.0 --self-loop-scale=0.1"; chain models: both 1.0)
  --acoustic-scale <scale>  # of the log-likelihoods (0.1; chain models: 1.0)
  --beam <beam>             # of the search and of the lattices (20)
  --iter <iteration>        # <iteration>.mdl in place of final.mdl
  --generate-ali-from-lats true|false  # write the best paths as ali.*.gz, too (false)
  --online-ivector-dir <dir>  # i-vectors of <data-dir> (extract_ivectors_online.sh), for a network that takes them
  --frames-per-chunk <n>    # frames of features that share an i-vector, or that a recurrent network begins anew with (50)
  --extra-left-context, --extra-right-context, --extra-left-context-initial, --extra-right-context-final <n>   # frames more that
                            # a recurrent network goes through around a chunk (0, 0, -1, -1)
  --stage <n>               # taken; all of it is one step
Not here: --graphs-scp.
EOF
}

nj=4 cmd=run.pl use_gpu=false beam=20 iter=final scale_opts="--transition-scale=1.0 --self-loop-scale=0.1" acoustic_scale=0.1 stage=-1
generate_ali_from_lats=false online_ivector_dir="" graphs_scp="" frames_per_chunk=50 extra_left_context=0 extra_right_context=0
extra_left_context_initial=-1 extra_right_context_final=-1
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 4 ]; then usage >&2; exit 1; fi
data=$1 lang=$2 src=$3 dir=$4
. nnet3_alignment.sh

copy_model
align_transcripts lattices "${network[@]}" --beam="$beam" --acoustic-scale="$acoustic_scale" \
  --alignments "$(of_lattices "$generate_ali_from_lats")" $scale_opts
