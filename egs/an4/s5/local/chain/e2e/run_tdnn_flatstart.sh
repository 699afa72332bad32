#!/usr/bin/env bash
# A chain (LF-MMI) TDNN-F from transcripts alone: no GMM, no alignment, no tree that is grown. After run.sh, stages 0 and 1.

usage() {
  cat <<EOF
Usage: local/chain/e2e/run_tdnn_flatstart.sh [options]
 e.g.: local/chain/e2e/run_tdnn_flatstart.sh --type biphone --ngpu 4 --strategy ma
Stages: 0 features   1 language directory, phone language model, tree and graphs   2 network configs   3 training   4 decoding and scoring
Options:
  --stage <n>              # first stage to run (0)
  --dir <dir>              # the experiment's folder (exp/chain/e2e_tdnn)
  --type mono|biphone      # pdfs for each phone, or for each phone behind each other one that is not rare (mono)
  --ngpu <n>               # workers in training (1)
  --strategy <name>        # what they exchange (ma)
  --seed <n>               # of the network's weights and the order of utterances (0)
  --num-epochs <n>         # each over the data three times, with another frame shift (15)
  --train-opts <options>   # more for steps/nnet3/chain/e2e/train_e2e.py, such as "--average-period 10 --dtype bf16"
  --use-gpu yes|no         # where there is one (yes)
  --nj <n>, --cmd <command>
EOF
}

cd "$(dirname "$0")/../../.." || exit 1
. ./cmd.sh
stage=0 dir=exp/chain/e2e_tdnn type=mono ngpu=1 strategy=ma seed=0 num_epochs=15 train_opts="" use_gpu=yes nj=$(nproc)
. ./path.sh
. parse_options.sh || exit 1
[ $# = 0 ] || { usage >&2; exit 1; }
set -e
set -o pipefail
tree=exp/chain/e2e_tree_$type lang=data/lang_e2e

if [ "$stage" -le 0 ]; then
  for part in train test; do
    hires=data/${part}_hires
    utils/copy_data_dir.sh data/$part $hires
    steps/make_mfcc.sh --mfcc-config conf/mfcc_hires.conf --nj "$nj" --cmd "$cmd" $hires exp/make_hires/$part mfcc_hires
    steps/compute_cmvn_stats.sh $hires exp/make_hires/$part mfcc_hires
  done
fi

if [ "$stage" -le 1 ]; then
  mkdir -p $lang "$tree"
  cp -r data/lang/. $lang
  rm -f $lang/inputs.json  # the topology is another one than that which the folder was made with
  steps/nnet3/chain/gen_topo.py "$(cat $lang/phones/nonsilence.csl)" "$(cat $lang/phones/silence.csl)" > $lang/topo
  steps/nnet3/chain/e2e/prepare_e2e.sh --nj "$nj" --cmd "$cmd" --type "$type" --tie true data/train_hires $lang "$tree"
  steps/nnet3/chain/e2e/text_to_phones.py --between-silprob 0.1 data/lang < data/train_hires/text |
    utils/sym2int.pl -f 2- data/lang/phones.txt | chain-est-phone-lm --num-extra-lm-states=2000 ark:- "$tree/phone_lm.fst"
fi

if [ "$stage" -le 2 ]; then
  pdfs=$(tree-info "$tree/tree" | sed -n 's/^num-pdfs //p')
  mkdir -p "$dir/configs"
  l2="l2-regularize=0.03"
  {
    echo "input dim=40 name=input"
    echo "idct-layer name=idct input=input dim=40 cepstral-lifter=22 affine-transform-file=$dir/configs/idct.mat"
    echo "batchnorm-component name=batchnorm0 input=idct"
    echo "relu-batchnorm-dropout-layer name=tdnn1 input=Append(-1,0,1) $l2 dropout-proportion=0.0 dropout-per-dim-continuous=true dim=256"
    for layer in 2:1 3:1 4:0 5:3 6:3 7:3; do  # its number, and the frames between those that it takes
      echo "tdnnf-layer name=tdnnf${layer%:*} $l2 dropout-proportion=0.0 bypass-scale=0.66 dim=256 bottleneck-dim=64 time-stride=${layer#*:}"
    done
    echo "linear-component name=prefinal-l $l2 orthonormal-constraint=-1.0 dim=64"
    echo "prefinal-layer name=prefinal-chain input=prefinal-l $l2 small-dim=64 big-dim=256"
    echo "output-layer name=output include-log-softmax=false dim=$pdfs l2-regularize=0.015"
  } > "$dir/configs/network.xconfig"
  steps/nnet3/xconfig_to_configs.py --xconfig-file "$dir/configs/network.xconfig" --config-dir "$dir/configs"
fi

if [ "$stage" -le 3 ]; then
  steps/nnet3/chain/e2e/train_e2e.py --cmd "$cmd" --feat-dir data/train_hires --tree-dir "$tree" --dir "$dir" \
    --feat.cmvn-opts "--norm-means=true --norm-vars=false" \
    --chain.leaky-hmm-coefficient 0.1 --chain.l2-regularize 0.00005 --chain.apply-deriv-weights false \
    --trainer.num-epochs "$num_epochs" --trainer.frames-per-iter 250000 --trainer.num-chunk-per-minibatch 150=32/300=16/600=8 \
    --trainer.optimization.num-jobs-initial "$ngpu" --trainer.optimization.num-jobs-final "$ngpu" \
    --trainer.optimization.initial-effective-lrate 0.001 --trainer.optimization.final-effective-lrate 0.0001 \
    --trainer.max-param-change 2.0 --trainer.dropout-schedule "0,0@0.20,0.3@0.50,0" \
    --trainer.srand "$seed" --use-gpu "$use_gpu" --strategy "$strategy" $train_opts
fi

if [ "$stage" -le 4 ]; then
  utils/mkgraph.sh --self-loop-scale 1.0 data/lang_test "$dir" "$dir/graph"
  steps/nnet3/decode.sh --nj "$nj" --cmd "$cmd" --acwt 1.0 --post-decode-acwt 10.0 --skip-scoring true \
    "$dir/graph" data/test_hires "$dir/decode"
  steps/score_kaldi.sh --cmd "$cmd" --min-lmwt 4 --max-lmwt 20 data/test_hires "$dir/graph" "$dir/decode"
fi
