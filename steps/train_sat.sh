#!/usr/bin/env bash
# Trains a speaker-adapted GMM system: SAT, with an fMLLR transform for each speaker.

usage() {
  cat <<EOF
Usage: steps/train_sat.sh [options] <num-leaves> <tot-gauss> <data-dir> <lang-dir> <alignment-dir> <exp-dir>
 e.g.: steps/train_sat.sh --nj 2 --cmd "\$train_cmd" 1800 9000 data/train data/lang exp/tri2_ali exp/tri3
The features are those of <alignment-dir> (deltas, or LDA+MLLT), and so are the first transforms, where it has trans.*.
Writes final.mdl, final.alimdl (for features that are not adapted), tree, trans.*, ali.*.gz, and log/train.log with a line an iteration.
Options:
  --nj <n>                  # threads, and files of alignments; nothing else depends on it (4)
  --cmd <command>           # how to run the job (run.sh)
  --num-iters <n>           # iterations (35)
  --max-iter-inc <n>        # last iteration in which the number of Gaussians grows (25)
  --realign-iters <list>    # iterations that align first (10 20 30)
  --fmllr-iters <list>      # iterations that estimate fMLLR (2 4 6 12)
  --fmllr-update-type full|diag|offset|none   # what transforms may be (full)
  --silence-weight <w>      # weight of silence in their estimation (0.0)
  --beam <beam>             # of the alignment (10)
  --retry-beam <beam>       # where an utterance does not reach its end (40)
  --boost-silence <factor>  # on the likelihoods of silence in alignment (1.0)
  --power <p>               # exponent of occupancy in a pdf's share of the Gaussians (0.2)
  --cluster-thresh <loss>   # leaves are merged while that costs less; -1: than the last split gained; 0: never (-1)
  --context-width <n>, --central-position <n>  # the tree's window of phones, and the modelled one's place in it, from 0 (3, 1)
  --seed <n>                # of the questions and the splits (0)
EOF
}

nj=4 cmd=run.sh num_iters=35 max_iter_inc=25 realign_iters="10 20 30" beam=10 retry_beam=40 boost_silence=1.0 power=0.2
cluster_thresh=-1 context_width=3 central_position=1 fmllr_iters="2 4 6 12" fmllr_update_type=full silence_weight=0.0 seed=0
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 6 ]; then usage >&2; exit 1; fi
leaves=$1 gauss=$2 data=$3 lang=$4 ali=$5 dir=$6
for f in "$data/feats.scp" "$data/text" "$lang"/{L.fst,topo,phones/roots.int} "$ali"/{final.mdl,ali.1.gz}; do
  [ -f "$f" ] || { echo "train_sat.sh: ERROR: $f does not exist; run the stage that makes it." >&2; exit 1; }
done

$cmd "$dir/log/train.log" pykaldist train-sat --nj "$nj" --num-iters "$num_iters" --max-iter-inc "$max_iter_inc" \
  --realign-iters "$realign_iters" --beam "$beam" --retry-beam "$retry_beam" --boost-silence "$boost_silence" --power "$power" \
  --cluster-thresh="$cluster_thresh" --context-width "$context_width" --central-position "$central_position" \
  --fmllr-iters "$fmllr_iters" --fmllr-update-type "$fmllr_update_type" --silence-weight "$silence_weight" --seed "$seed" \
  "$leaves" "$gauss" "$data" "$lang" "$ali" "$dir" || exit 1
grep '^WARNING:' "$dir/log/train.log" | sed 's/^/train_sat.sh: /' >&2
echo "train_sat.sh: $(sed -n 's/^SUMMARY: //p' "$dir/log/train.log"); model in $dir"
