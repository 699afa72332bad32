#!/usr/bin/env bash
# Trains a subspace Gaussian mixture model (SGMM) system, symmetric and with state-clustered tied mixtures, with vectors of speakers.

name=${0##*/}

usage() {
  cat <<EOF
Usage: steps/$name [options] <num-leaves> <num-substates> <data-dir> <lang-dir> <alignment-dir> <ubm> <exp-dir>
 e.g.: steps/$name --cmd "\$train_cmd" 5000 7000 data/train data/lang exp/tri3b_ali exp/ubm4a/final.ubm exp/sgmm2_4a
The features are those of <alignment-dir>, with its transforms of speakers where it has trans.*. Writes final.mdl, final.alimdl (for speakers
without a vector), tree, vecs.*, ali.*.gz, and log/train.log with the tree and a line an iteration.
Options, Kaldi's with Kaldi's defaults:
  --num-iters <n>              # iterations ($num_iters)
  --num-iters-alimdl <n>       # iterations for final.alimdl ($num_iters_alimdl)
  --max-iter-inc <n>           # iterations in which the number of substates grows ($max_iter_inc)
  --realign-iters <list>       # iterations that align first ($realign_iters)
  --spkvec-iters <list>        # iterations that estimate speakers' vectors ($spkvec_iters)
  --phn-dim <n>                # dimension of the space of vectors (that of features + 1, which is the most)
  --spk-dim <n>                # dimension of the space of speakers; 0: no vectors of speakers (that of features, which is the most)
  --power <p>                  # exponent of occupancy in a group's share of the substates ($power)
  --self-weight <w>            # weight that each pdf of a group gives to a substate of its own at first ($self_weight)
  --leaves-per-group <n>       # pdfs of a group, on average ($leaves_per_group)
  --update-m-iter <n>          # first iteration that estimates phone projections ($update_m_iter)
  --spk-dep-weights true|false # Gaussians' weights depend on the speaker: the symmetric model ($spk_dep_weights)
  --beam <beam>                # of the alignment ($beam)
  --retry-beam <beam>          # where an utterance does not reach its end ($retry_beam)
  --scale-opts <options>       # of alignment ("--transition-scale=1.0 --acoustic-scale=0.1 --self-loop-scale=0.1")
  --context-opts <options>     # the tree's window of phones, and the modelled one's place in it ("--context-width=3 --central-position=1")
  --config <file>              # options, one a line as name=value
  --rand-prune, --stage, --group <n>, --increase-iters <list>, --parallel-opts <options>   # taken as Kaldi takes them, and change nothing:
                               # posteriors are summed up whole, and the training begins anew
and
$(array_job_usage "jobs, and files of alignments (as many as <alignment-dir> has)")
$(keep_feats_usage)
  --seed <n>                   # of the questions and the splits (0)
EOF
}

nj="" cmd=run.pl jobs=auto block_frames=0 keep_feats=auto stage=-6 context_opts="" scale_opts="" num_iters=25 num_iters_alimdl=3 max_iter_inc=15 realign_iters="5 10 15"
spkvec_iters="5 8 12 17" increase_iters="6 10 14" rand_prune=0.1 phn_dim="" spk_dim="" power=0.25 beam=8 self_weight=0.9 retry_beam=40
group=3 parallel_opts="" leaves_per_group=5 update_m_iter=4 spk_dep_weights=true seed=0
[ -f path.sh ] && . ./path.sh
. gmm_jobs.sh
. parse_options.sh || exit 1
if [ $# != 7 ]; then usage >&2; exit 1; fi
data=$3 lang=$4 ali=$5 ubm=$6 dir=$7
for f in "$data/feats.scp" "$data/text" "$lang"/{L.fst,topo,phones/roots.int} "$ali"/{final.mdl,ali.1.gz,num_jobs} "$ubm"; do
  [ -f "$f" ] || { . missing.sh "$name" "$f"; exit 1; }
done
[ -n "$nj" ] || nj=$(cat "$ali/num_jobs") || exit 1
. fewer_jobs.sh
fewer_jobs "$data" utterances
options=()
for option in nj block_frames keep_feats num_iters num_iters_alimdl max_iter_inc realign_iters spkvec_iters power self_weight leaves_per_group update_m_iter \
  spk_dep_weights beam retry_beam seed; do
  options+=("--${option//_/-}=${!option}")
done
gmm_jobs
$stage_cmd "$dir/log/train.log" pykaldist train-sgmm2 "${options[@]}" ${phn_dim:+"--phn-dim=$phn_dim"} ${spk_dim:+"--spk-dim=$spk_dim"} $scale_opts \
  $context_opts "$@" || exit 1
grep '^WARNING:' "$dir/log/train.log" | sed "s/^/$name: /" >&2
echo "$name: $(sed -n 's/^SUMMARY: //p' "$dir/log/train.log"); model in $dir"
