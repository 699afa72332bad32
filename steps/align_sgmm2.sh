#!/usr/bin/env bash
# Aligns a data directory with a subspace model (SGMM) system, and estimates vectors of its speakers.

usage() {
  cat <<EOF
Usage: steps/align_sgmm2.sh [options] <data-dir> <lang-dir> <src-dir> <ali-dir>
 e.g.: steps/align_sgmm2.sh --nj 8 --transform-dir exp/tri3b data/train data/lang exp/sgmm2_4a exp/sgmm2_4a_ali
Writes the alignments ali.*.gz, the vectors vecs.*, and copies of the models and their tree, to <ali-dir>.
Options, Kaldi's with Kaldi's defaults:
  --transform-dir <dir>        # speakers' fMLLR transforms (trans.*), for a system that was trained with such
  --beam <beam>                # of the alignment ($beam)
  --retry-beam <beam>          # where an utterance does not reach its end ($retry_beam)
  --scale-opts <options>       # of alignment ("--transition-scale=1.0 --acoustic-scale=0.1 --self-loop-scale=0.1")
  --gselect <n>                # Gaussians in a frame ($gselect)
  --config <file>              # options, one a line as name=value
  --use-graphs, --use-gselect true|false, --stage <n>   # taken as Kaldi takes them, and change nothing: trainings store neither graphs
                               # nor selected Gaussians, which are made again, and it begins anew
and
  --careful true|false         # let an utterance fail that fits its transcript better said again, in part, than said once ($careful)
$(array_job_usage)
$(keep_feats_usage)
EOF
}

nj=4 cmd=run.pl jobs=auto block_frames=0 keep_feats=auto stage=0 use_graphs=false use_gselect=false gselect=15 scale_opts="" beam=10 retry_beam=40 transform_dir="" careful=false
[ -f path.sh ] && . ./path.sh
. gmm_jobs.sh
. parse_options.sh || exit 1
if [ $# != 4 ]; then usage >&2; exit 1; fi
data=$1 lang=$2 src=$3 dir=$4
for f in "$data/feats.scp" "$data/text" "$lang/L.fst" "$src"/{final.mdl,tree} ${transform_dir:+"$transform_dir/trans.1"}; do
  [ -f "$f" ] || { . missing.sh align_sgmm2.sh "$f"; exit 1; }
done
. fewer_jobs.sh
fewer_jobs "$data" utterances
options=(--nj "$nj" --block-frames "$block_frames" --keep-feats "$keep_feats" --beam "$beam" --retry-beam "$retry_beam")
gmm_jobs
$stage_cmd "$dir/log/align.log" pykaldist align-sgmm2 "${options[@]}" --careful "$careful" \
  --gselect "$gselect" ${transform_dir:+--transform-dir "$transform_dir"} $scale_opts "$@" || exit 1
grep '^WARNING:' "$dir/log/align.log" | sed 's/^/align_sgmm2.sh: /' >&2
echo "align_sgmm2.sh: $(sed -n 's/^SUMMARY: //p' "$dir/log/align.log"); alignments in $dir"
