# Sourced by steps/train_{deltas,lda_mllt,sat,quick}.sh, which set: verb; example, arguments and what they make; writes, the files; features,
# a sentence about them or nothing; power; own, the names of their own options with defaults set, and own_usage, the lines on these.
name=${verb//-/_}.sh

usage() {
  cat <<EOF
Usage: steps/$name [options] <num-leaves> <tot-gauss> <data-dir> <lang-dir> <alignment-dir> <exp-dir>
 e.g.: steps/$name --nj 2 --cmd "\$train_cmd" 1800 9000 data/train data/lang $example
${features:+$features
}Writes $writes,
and log/train.log with the tree and a line an iteration.
Options:
$(gmm_job_usage)
  --stage <n>               # iteration to go on with, as the log of an interrupted training names it; below 1: begin (-5)
  --num-iters <n>           # iterations ($num_iters)
  --max-iter-inc <n>        # last iteration in which the number of Gaussians grows ($max_iter_inc)
  --realign-iters <list>    # iterations that align first ($realign_iters)
${own_usage:+$own_usage
}  --beam <beam>             # of the alignment (10)
$(gmm_alignment_usage)
  --power <p>               # exponent of occupancy in a pdf's share of the Gaussians ($power)
  --cluster-thresh <loss>   # leaves are merged while that costs less; -1: than the last split gained; 0: never (-1)
  --context-opts <options>  # the tree's window of phones, and the modelled one's place in it ("--context-width=3 --central-position=1")
  --seed <n>                # of the questions and the splits (0)
EOF
}

nj=4 cmd=run.pl jobs=auto block_frames=0 keep_feats=auto device=cpu stage=-5 beam=10 retry_beam=40 careful=false
boost_silence=1.0 scale_opts="" cluster_thresh=-1 context_opts="" seed=0
num_iters=35 max_iter_inc=25 realign_iters="10 20 30"
[ "$verb" != train-quick ] || { num_iters=20 max_iter_inc=15 realign_iters="10 15"; }
[ -f path.sh ] && . ./path.sh
. gmm_jobs.sh
. parse_options.sh || exit 1
if [ $# != 6 ]; then usage >&2; exit 1; fi
data=$3 lang=$4 ali=$5 dir=$6
for f in "$data/feats.scp" "$data/text" "$lang"/{L.fst,topo,phones/roots.int} "$ali"/{final.mdl,ali.1.gz}; do
  [ -f "$f" ] || { . missing.sh "$name" "$f"; exit 1; }
done
. fewer_jobs.sh
fewer_jobs "$data" utterances
options=()
for option in nj block_frames keep_feats device stage num_iters max_iter_inc realign_iters beam retry_beam careful boost_silence power cluster_thresh \
  seed "${own[@]}"; do
  options+=("--${option//_/-}=${!option}")
done

gmm_jobs
$stage_cmd "$dir/log/train.log" pykaldist "$verb" "${options[@]}" $scale_opts $context_opts "$@" || exit 1
grep '^WARNING:' "$dir/log/train.log" | sed "s/^/$name: /" >&2
echo "$name: $(sed -n 's/^SUMMARY: //p' "$dir/log/train.log"); model in $dir"
