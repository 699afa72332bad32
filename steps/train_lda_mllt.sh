#!/usr/bin/env bash
# Trains a context-dependent (triphone) GMM system on spliced features through LDA and MLLT, from an alignment.

usage() {
  cat <<EOF
Usage: steps/train_lda_mllt.sh [options] <num-leaves> <tot-gauss> <data-dir> <lang-dir> <alignment-dir> <exp-dir>
 e.g.: steps/train_lda_mllt.sh --nj 2 --cmd "\$train_cmd" 1800 9000 data/train data/lang exp/tri1_ali exp/tri2
Writes final.mdl, tree, the transform final.mat, the alignments ali.*.gz, and log/train.log with the tree and a line an iteration.
Options:
  --nj <n>                  # threads, and files of alignments; nothing else depends on it (4)
  --cmd <command>           # how to run the job (run.sh)
  --num-iters <n>           # iterations (35)
  --max-iter-inc <n>        # last iteration in which the number of Gaussians grows (25)
  --realign-iters <list>    # iterations that align first (10 20 30)
  --mllt-iters <list>       # iterations that estimate MLLT (2 4 6 12)
  --dim <n>                 # dimensions that LDA leaves (40)
  --splice-opts <options>   # such as "--left-context=3 --right-context=3" (4 on each side)
  --beam <beam>             # of the alignment (10)
  --retry-beam <beam>       # where an utterance does not reach its end (40)
  --boost-silence <factor>  # on the likelihoods of silence in alignment (1.0)
  --power <p>               # exponent of occupancy in a pdf's share of the Gaussians (0.25)
  --cluster-thresh <loss>   # leaves are merged while that costs less; -1: than the last split gained; 0: never (-1)
  --context-width <n>, --central-position <n>  # the tree's window of phones, and the modelled one's place in it, from 0 (3, 1)
  --cmvn-opts <options>     # as in Kaldi, such as "--norm-vars=true"
  --seed <n>                # of the questions and the splits (0)
EOF
}

nj=4 cmd=run.sh num_iters=35 max_iter_inc=25 realign_iters="10 20 30" beam=10 retry_beam=40 boost_silence=1.0 power=0.25
cluster_thresh=-1 context_width=3 central_position=1 cmvn_opts="" splice_opts="" mllt_iters="2 4 6 12" dim=40 seed=0
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 6 ]; then usage >&2; exit 1; fi
leaves=$1 gauss=$2 data=$3 lang=$4 ali=$5 dir=$6
for f in "$data/feats.scp" "$data/text" "$lang"/{L.fst,topo,phones/roots.int} "$ali"/{final.mdl,ali.1.gz}; do
  [ -f "$f" ] || { echo "train_lda_mllt.sh: ERROR: $f does not exist; run the stage that makes it." >&2; exit 1; }
done

$cmd "$dir/log/train.log" pykaldist train-lda-mllt --nj "$nj" --num-iters "$num_iters" --max-iter-inc "$max_iter_inc" \
  --realign-iters "$realign_iters" --beam "$beam" --retry-beam "$retry_beam" --boost-silence "$boost_silence" --power "$power" \
  --cluster-thresh="$cluster_thresh" --context-width "$context_width" --central-position "$central_position" \
  --mllt-iters "$mllt_iters" --dim "$dim" --cmvn-opts="$cmvn_opts" --splice-opts="$splice_opts" --seed "$seed" \
  "$leaves" "$gauss" "$data" "$lang" "$ali" "$dir" || exit 1
grep '^WARNING:' "$dir/log/train.log" | sed 's/^/train_lda_mllt.sh: /' >&2
echo "train_lda_mllt.sh: $(sed -n 's/^SUMMARY: //p' "$dir/log/train.log"); model in $dir"
