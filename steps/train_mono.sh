#!/usr/bin/env bash
# Trains a monophone GMM system from a flat start.

usage() {
  cat <<EOF
Usage: steps/train_mono.sh [options] <data-dir> <lang-dir> <exp-dir>
 e.g.: steps/train_mono.sh --nj 2 --cmd "\$train_cmd" data/train data/lang exp/mono
Writes final.mdl, tree, the alignments ali.*.gz, and log/train.log with a line an iteration.
Options:
$(gmm_job_usage)
  --totgauss <n>            # Gaussians in all (1000)
  --stage <n>               # iteration to go on with, as the log of an interrupted training names it; below 1: begin (-4)
  --num-iters <n>           # iterations (40)
  --max-iter-inc <n>        # last iteration in which the number of Gaussians grows (30)
  --realign-iters <list>    # iterations that align first (1 2 3 ... 38, as Kaldi)
  --initial-beam <beam>     # of the first alignment (6)
  --regular-beam <beam>     # of the others (10)
$(gmm_alignment_usage)
  --power <p>               # exponent of occupancy in a pdf's share of the Gaussians (0.25)
  --shared-phones true|false  # phones that differ only in their place in the word share their pdfs (true)
  --cmvn-opts, --delta-opts <options>  # as in Kaldi, such as "--norm-vars=true"
  --num-starts <n>          # flat starts, of which the likeliest goes on (4 for up to ten minutes of speech, else 1)
  --seed <n>                # of the flat start and the splits (0)
EOF
}

nj=4 cmd=run.pl jobs=auto block_frames=0 keep_feats=auto device=cpu stage=-4 totgauss=1000 num_iters=40 max_iter_inc=30 initial_beam=6 regular_beam=10 retry_beam=40
careful=false boost_silence=1.0 scale_opts="" power=0.25 shared_phones=true num_starts="" cmvn_opts="" delta_opts="" seed=0
realign_iters="1 2 3 4 5 6 7 8 9 10 12 14 16 18 20 23 26 29 32 35 38"
[ -f path.sh ] && . ./path.sh
. gmm_jobs.sh
. parse_options.sh || exit 1
if [ $# != 3 ]; then usage >&2; exit 1; fi
data=$1 lang=$2 dir=$3
for f in "$data/feats.scp" "$data/text" "$lang/L.fst" "$lang/topo"; do
  [ -f "$f" ] || { . missing.sh train_mono.sh "$f"; exit 1; }
done

. fewer_jobs.sh
fewer_jobs "$data" utterances
options=(--beam "$regular_beam")
for option in nj device block_frames keep_feats stage totgauss num_iters max_iter_inc realign_iters initial_beam retry_beam careful boost_silence \
  power shared_phones cmvn_opts delta_opts seed; do
  options+=("--${option//_/-}=${!option}")
done
[ -z "$num_starts" ] || options+=(--num-starts="$num_starts")

gmm_jobs
$stage_cmd "$dir/log/train.log" pykaldist train-mono "${options[@]}" $scale_opts "$@" || exit 1
grep '^WARNING:' "$dir/log/train.log" | sed 's/^/train_mono.sh: /' >&2
echo "train_mono.sh: $(sed -n 's/^SUMMARY: //p' "$dir/log/train.log"); model in $dir"
