#!/usr/bin/env bash
# A chain (LF-MMI) TDNN-F on 40 MFCCs, with or without speed perturbation and i-vectors, on the alignments of tri3. After run.sh, stages 0 to 2.

usage() {
  cat <<EOF
Usage: local/chain/run_tdnn.sh [options]
 e.g.: local/chain/run_tdnn.sh --ngpu 4 --strategy ma
       local/chain/run_tdnn.sh --ivectors true
Stages: 0 features   1 language directory, tree, graph   2 network configs   3 training   4 decoding and scoring
Options:
  --stage <n>, --stop-stage <n>   # first (0) and last (4) stage to run
  --speeds true|false      # train on three speeds (false)
  --ivectors true|false    # give the network online i-vectors, and train it on three speeds (false)
  --cmvn-opts <options>    # of the network's features (without i-vectors "--norm-means=true --norm-vars=false"; with them none, as Vosk needs)
  --dir <dir>              # the experiment's folder (exp/chain/tdnn, with _sp for three speeds, _ivector for i-vectors)
  --ngpu <n>, --strategy <name>   # workers in training (1), and what they exchange (ma)
  --num-leaves <n>, --dim <n>, --bottleneck-dim <n>   # leaves of the tree exp/chain/tree*_<n> (250), units of a TDNN-F layer (256), of its bottleneck (64)
  --num-epochs <n>, --seed <n>    # epochs, each three times over the data, with other frame shifts (12; of three speeds 5); seed of weights and order (0)
  --train-opts <options>   # more for steps/nnet3/chain/train.py, such as "--average-period 10 --dtype bf16"
  --use-gpu yes|no         # where there is one (yes); --nj <n>, --cmd <command>
EOF
}

cd "$(dirname "$0")/../.." || exit 1
. ./cmd.sh
stage=0 stop_stage=4 speeds=false ivectors=false cmvn_opts="" dir="" ngpu=1 strategy=ma seed=0 num_leaves="" dim=256 bottleneck_dim=64 num_epochs="" train_opts="" use_gpu=yes nj=$(nproc)
. ./path.sh
. parse_options.sh || exit 1
[ $# = 0 ] || { usage >&2; exit 1; }
set -e
train=train affix="" lang=data/lang_chain ali=exp/tri3_ali norm=true epochs=12
[ "$speeds$ivectors" = falsefalse ] || train=train_sp affix=_sp ali=exp/tri3_ali_train_sp epochs=5
tree=exp/chain/tree$affix${num_leaves:+_$num_leaves} spliced="Append(-1,0,1)" heard="" heard_test=""
if [ "$ivectors" = true ]; then
  affix=_ivector norm=false spliced="Append(-1,0,1, Scale(0.4, ReplaceIndex(ivector, t, 0)))"
  heard=exp/nnet3/ivectors_train_sp_hires heard_test=exp/nnet3/ivectors_test_hires
fi
dir=${dir:-exp/chain/tdnn$affix} cmvn_opts=${cmvn_opts:---norm-means=$norm --norm-vars=false}
want() { [ "$stage" -le "$1" ] && [ "$1" -le "$stop_stage" ]; }

if want 0 && [ $train = train_sp ]; then
  local/nnet3/run_ivector_common.sh --nj "$nj"
elif want 0; then
  for set in train test; do
    utils/copy_data_dir.sh data/$set data/${set}_hires
    steps/make_mfcc.sh --nj "$nj" --cmd "$cmd" --mfcc-config conf/mfcc_hires.conf data/${set}_hires exp/make_hires/$set mfcc_hires
    utils/fix_data_dir.sh data/${set}_hires
    steps/compute_cmvn_stats.sh data/${set}_hires exp/make_hires/$set mfcc_hires
  done
fi

if want 1; then
  mkdir -p $lang
  cp -r data/lang/. $lang
  rm -f $lang/inputs.json  # the topology is another one than that which the folder was made with
  steps/nnet3/chain/gen_topo.py "$(cat $lang/phones/nonsilence.csl)" "$(cat $lang/phones/silence.csl)" > $lang/topo
  steps/nnet3/chain/build_tree.sh --cmd "$cmd" --frame-subsampling-factor 3 --context-opts "--context-width=2 --central-position=1" \
    "${num_leaves:-250}" data/$train $lang $ali $tree
  utils/mkgraph.sh --self-loop-scale 1.0 data/lang_test $tree $tree/graph
fi

if want 2; then
  pdfs=$(tree-info $tree/tree | sed -n 's/^num-pdfs //p')
  mkdir -p "$dir/configs"
  tdnnf="l2-regularize=0.03 dropout-proportion=0.0 bypass-scale=0.66 dim=$dim bottleneck-dim=$bottleneck_dim"
  cat > "$dir/configs/network.xconfig" <<EOF
${heard:+input dim=$(feat-to-dim scp:$heard/ivector_online.scp -) name=ivector}
input dim=40 name=input
idct-layer name=idct input=input dim=40 cepstral-lifter=22 affine-transform-file=$dir/configs/idct.mat
batchnorm-component name=batchnorm0 input=idct
relu-batchnorm-dropout-layer name=tdnn1 input=$spliced l2-regularize=0.03 dropout-proportion=0.0 dropout-per-dim-continuous=true dim=$dim
$(n=1; for stride in 1 1 0 3 3 3; do n=$((n + 1)); echo "tdnnf-layer name=tdnnf$n $tdnnf time-stride=$stride"; done)
linear-component name=prefinal-l l2-regularize=0.03 orthonormal-constraint=-1.0 dim=$bottleneck_dim
prefinal-layer name=prefinal-chain input=prefinal-l l2-regularize=0.03 small-dim=$bottleneck_dim big-dim=$dim
output-layer name=output include-log-softmax=false dim=$pdfs l2-regularize=0.015
prefinal-layer name=prefinal-xent input=prefinal-l l2-regularize=0.03 small-dim=$bottleneck_dim big-dim=$dim
output-layer name=output-xent dim=$pdfs learning-rate-factor=5.0 l2-regularize=0.015
EOF
  steps/nnet3/xconfig_to_configs.py --xconfig-file "$dir/configs/network.xconfig" --config-dir "$dir/configs"
fi

if want 3; then
  steps/nnet3/chain/train.py --cmd "$cmd" \
    --feat-dir data/${train}_hires --tree-dir $tree --lat-dir $ali --dir "$dir" \
    --feat.cmvn-opts "$cmvn_opts" ${heard:+--feat.online-ivector-dir $heard} \
    --chain.xent-regularize 0.1 --chain.leaky-hmm-coefficient 0.1 --chain.l2-regularize 0.0 --chain.apply-deriv-weights false \
    --chain.lm-opts="--num-extra-lm-states=2000" \
    --egs.chunk-width 150,110,90,60 --egs.opts "--frames-overlap-per-eg 0" \
    --trainer.num-epochs "${num_epochs:-$epochs}" --trainer.frames-per-iter 250000 --trainer.num-chunk-per-minibatch 32,16 \
    --trainer.optimization.num-jobs-initial "$ngpu" --trainer.optimization.num-jobs-final "$ngpu" \
    --trainer.optimization.initial-effective-lrate 0.002 --trainer.optimization.final-effective-lrate 0.0002 \
    --trainer.max-param-change 2.0 --trainer.dropout-schedule "0,0@0.20,0.3@0.50,0" \
    --trainer.srand "$seed" --use-gpu "$use_gpu" --strategy "$strategy" $train_opts
fi

if want 4; then
  steps/nnet3/decode.sh --nj "$nj" --cmd "$cmd" --acwt 1.0 --post-decode-acwt 10.0 --skip-scoring true \
    ${heard:+--online-ivector-dir $heard_test} $tree/graph data/test_hires "$dir/decode"
  steps/score_kaldi.sh --cmd "$cmd" --min-lmwt 4 --max-lmwt 20 data/test_hires $tree/graph "$dir/decode"
fi
