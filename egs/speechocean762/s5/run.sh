#!/usr/bin/env bash
# speechocean762 (English read by speakers of Mandarin, 16 kHz), from the corpus to a word error rate.

usage() {
  cat <<EOF
Usage: ./run.sh [options]
 e.g.: ./run.sh                          # everything
       ./run.sh --stage 5 --ngpu 1       # from training on
Stages: 0 corpus, language, language model   1 features         2 GMMs, or imported alignments       3 frame store
        4 RBM pretraining, optional          5 network training 6 decoding   7 scoring               8 report
Options:
  --stage <n>, --stop-stage <n>   # first and last stage to run (0, 8)
  --corpus <dir>                  # speechocean762 in its public layout (train/, WAVE/, resource/); else it is fetched from OpenSLR 101
  --speakers adults|all           # whose speech; half of the speakers are children (adults)
  --ali-dir <source>              # alignments to import in stage 2 instead of a GMM (see steps/import_ali.sh); the same at later stages
  --ali-opts <options>            # for steps/import_ali.sh, such as "--max-unmatched 20"
  --rbm true|false                # whether the network starts from a stack of RBMs, or from random weights (true)
  --nj <n>                        # parallel jobs (the machine's cores)
  --ngpu <n>                      # workers in training, on as many devices or cores as there are (1)
  --strategy <name>               # what they exchange: ma, bmuf, ssgd, onebit, local, asgd, adpsgd, hadpsgd (ma)
  --train-opts <options>          # more for steps/nnet/train.sh, such as "--average-period 20 --learn-rate 0.004"
  --rbm-ngpu <n>                  # workers in pretraining (1)
  --device <name>                 # cpu, cuda, cuda:N or auto (auto)
  --cmd <command>                 # how to run jobs (see cmd.sh)
EOF
}

from=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1
. ./cmd.sh
stage=0 stop_stage=8 corpus="" speakers=adults ali_dir="" ali_opts="" rbm=true rbm_ngpu=1 nj=$(nproc)
ngpu=1 strategy=ma train_opts="" device=auto
. ./path.sh
. parse_options.sh || exit 1
[ $# = 0 ] || { usage >&2; exit 1; }
case $corpus in "" | /*) ;; *) corpus=$from/$corpus ;; esac
case $ali_dir in "" | /*) ;; *) ali_dir=$from/$ali_dir ;; esac
if [ -n "$ali_dir" ]; then ali=exp/ali graph=exp/ali/graph train=data/train test=data/test systems="dnn"
else ali=exp/tri3_ali graph=exp/tri3/graph train=data-fmllr/train test=data-fmllr/test systems="mono tri1 tri2 tri3 dnn"; fi
case $rbm in true | false) ;; *) echo "run.sh: ERROR: --rbm $rbm: expected true or false." >&2; exit 1 ;; esac
shape="--hid-layers 4 --hid-dim 512"  # of the network
set -e

# want N "what": true if stage N is to be run, and says so
want() { [ "$stage" -le "$1" ] && [ "$stop_stage" -ge "$1" ] && echo "== stage $1: $2 ($SECONDS s)"; }

if want 0 "corpus, language, language model"; then
  local/prepare_data.sh ${corpus:+--corpus "$corpus"} --speakers "$speakers"
  utils/prepare_lang.sh data/local/dict "<UNK>" data/local/lang data/lang
  utils/train_lm.sh --order 3 data/train/text data/lang/words.txt data/local/lm.arpa.gz
  utils/format_lm.sh data/lang data/local/lm.arpa.gz data/local/dict/lexicon.txt data/lang_test
fi

if want 1 "features: MFCC"; then
  for set in train test; do
    steps/make_mfcc.sh --nj "$nj" --cmd "$cmd" data/$set exp/make_mfcc/$set mfcc
    utils/fix_data_dir.sh data/$set  # up to 1 % may have had unusable audio
    steps/compute_cmvn_stats.sh data/$set exp/make_mfcc/$set mfcc
  done
fi

if want 2 "alignments: GMMs up to speaker-adaptive training, or imported"; then
  if [ -n "$ali_dir" ]; then
    steps/import_ali.sh --nj "$nj" --cmd "$cmd" $ali_opts "$ali_dir" data/train data/lang $ali
    utils/mkgraph.sh data/lang_test $ali $graph
  else
    jobs=(--nj "$nj" --cmd "$cmd")
    steps/train_mono.sh "${jobs[@]}" data/train data/lang exp/mono
    steps/align_si.sh "${jobs[@]}" data/train data/lang exp/mono exp/mono_ali
    steps/train_deltas.sh "${jobs[@]}" 1800 9000 data/train data/lang exp/mono_ali exp/tri1
    steps/align_si.sh "${jobs[@]}" data/train data/lang exp/tri1 exp/tri1_ali
    steps/train_lda_mllt.sh "${jobs[@]}" 1800 9000 data/train data/lang exp/tri1_ali exp/tri2
    steps/align_si.sh "${jobs[@]}" data/train data/lang exp/tri2 exp/tri2_ali
    steps/train_sat.sh "${jobs[@]}" 1800 9000 data/train data/lang exp/tri2_ali exp/tri3
    steps/align_fmllr.sh "${jobs[@]}" data/train data/lang exp/tri3 exp/tri3_ali
    for system in mono tri1 tri2 tri3; do
      utils/mkgraph.sh data/lang_test exp/$system exp/$system/graph
      case $system in tri3) decode=decode_fmllr ;; *) decode=decode ;; esac
      steps/$decode.sh "${jobs[@]}" --skip-scoring true exp/$system/graph data/test exp/$system/decode
    done
    steps/nnet/make_fmllr_feats.sh "${jobs[@]}" --transform-dir $ali data-fmllr/train data/train exp/tri3 exp/make_fmllr/train fmllr
    steps/nnet/make_fmllr_feats.sh "${jobs[@]}" --transform-dir exp/tri3/decode data-fmllr/test data/test exp/tri3 exp/make_fmllr/test fmllr
  fi
fi

if want 3 "frame store"; then
  if [ -n "$ali_dir" ]; then feature_opts="--delta-opts --delta-order=2"; else feature_opts="--cmvn-opts --norm-means=false"; fi
  steps/nnet/pack.sh --cmd "$cmd" $feature_opts $train $ali exp/dnn/store
fi

if want 4 "RBM pretraining"; then
  if $rbm; then
    steps/nnet/pretrain_dbn.sh --cmd "$cmd" --ngpu "$rbm_ngpu" --strategy "$strategy" --device "$device" $shape exp/dnn/store exp/dbn
  else
    echo "run.sh: without --rbm true, the network starts from random weights"
  fi
fi

if want 5 "network training"; then
  dbn=""; if $rbm; then dbn="--dbn exp/dbn"; fi
  serial=""; [ "$ngpu" = 1 ] || serial="--serial-warmup 1"
  steps/nnet/train.sh --cmd "$cmd" --ngpu "$ngpu" --strategy "$strategy" --device "$device" $shape $dbn $serial --optimizer ngsgd \
    --schedule exponential --learn-rate 0.008 --final-learn-rate 0.0008 --num-epochs 8 $train_opts exp/dnn/store exp/dnn
fi

if want 6 "decoding with the network"; then
  steps/decode.sh --skip-scoring true --nj "$nj" --cmd "$cmd" $graph $test exp/dnn/decode
fi

if want 7 "scoring"; then
  for system in $systems; do utils/score.sh --cmd "$cmd" data/test $graph exp/$system/decode; done
fi

if want 8 "report"; then
  pykaldist report exp
fi
