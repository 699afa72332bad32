#!/usr/bin/env bash
# Makes the tree of a chain (LF-MMI) model from an alignment, for another topology and a lower frame rate.

usage() {
  cat <<EOF
Usage: steps/nnet3/chain/build_tree.sh [options] <num-leaves> <data-dir> <lang-dir> <alignment-dir> <tree-dir>
 e.g.: steps/nnet3/chain/build_tree.sh --frame-subsampling-factor 3 --context-opts "--context-width=2 --central-position=1" \\
         3500 data/train data/lang_chain exp/tri3_ali exp/chain/tree
The topology of <lang-dir> is that of chain models (steps/nnet3/chain/gen_topo.py). Writes tree, final.mdl (transition model, and one
Gaussian for each pdf), the alignment at the lower frame rate as ali.*.gz, num_jobs, phones.txt, and the files about features, to <tree-dir>.
Options:
  --frame-subsampling-factor <n>      # input frames to a frame of the model's output (1; chain models: 3)
  --alignment-subsampling-factor <n>  # frames of the alignment to an output frame (as --frame-subsampling-factor); 1 for an alignment
                                      # that a chain model made
  --repeat-frames true|false          # the written alignment has as many frames as the old one (false)
  --context-opts <options>            # the tree's window of phones, and the modelled one's place in it ("--context-width=3 --central-position=1")
  --cluster-phones-opts <options>     # --pdf-class-list=<n>[:<n>...]: what the questions are made of ("--pdf-class-list=1")
  --cluster-thresh <loss>             # leaves are merged while that costs less; -1: than the last split gained; 0: never (-1)
  --leftmost-questions-truncate <n>, --stage <n>, --exit-stage <n>   # taken as Kaldi takes them, and change nothing: a run begins anew
and
EOF
  array_job_usage "jobs, no more than utterances (as many as <alignment-dir> has files of alignments)"
}

nj="" cmd=run.pl jobs=auto block_frames=0 frame_subsampling_factor=1 alignment_subsampling_factor="" repeat_frames=false context_opts="" cluster_phones_opts=""
cluster_thresh=-1 leftmost_questions_truncate=-1 stage=-5 exit_stage=-100
[ -f path.sh ] && . ./path.sh
. gmm_jobs.sh
. parse_options.sh || exit 1
if [ $# != 5 ]; then usage >&2; exit 1; fi
data=$2 lang=$3 ali=$4 dir=$5
for f in "$data/feats.scp" "$lang"/{topo,phones.txt,phones/{roots,sets,context_indep}.int} "$ali"/{final.mdl,ali.1.gz,num_jobs}; do
  [ -f "$f" ] || { . missing.sh build_tree.sh "$f"; exit 1; }
done
[ -n "$nj" ] || nj=$(cat "$ali/num_jobs") || exit 1
. fewer_jobs.sh
fewer_jobs "$data" utterances
options=(--nj "$nj" --block-frames "$block_frames" "--alignment-subsampling-factor=${alignment_subsampling_factor:-0}")
for option in frame_subsampling_factor repeat_frames cluster_thresh; do options+=("--${option//_/-}=${!option}"); done
gmm_jobs
$stage_cmd "$dir/log/build_tree.log" pykaldist build-chain-tree "${options[@]}" $context_opts $cluster_phones_opts "$@" || exit 1
grep '^WARNING:' "$dir/log/build_tree.log" | sed "s/^/build_tree.sh: /" >&2
echo "build_tree.sh: $(sed -n 's/^SUMMARY: //p' "$dir/log/build_tree.log"); tree in $dir"
