#!/usr/bin/env bash
# Of swbd's kind, with nnet1: segments of recordings, duplicates removed, graphs by the runner, and a DBN on features that fMLLR has adapted.
stage=0
. ./cmd.sh
. ./path.sh
. utils/parse_options.sh
set -e

if [ $stage -le 0 ]; then
  utils/prepare_lang.sh data/local/dict "<SIL>" data/local/lang data/lang
  utils/format_lm_sri.sh --srilm-opts "-subset -prune-lowprobs -unk -tolower -order 3" \
    data/lang data/local/lm/lm_small.arpa.gz data/local/dict/lexicon.txt data/lang_sw1_tg
  utils/build_const_arpa_lm.sh data/local/lm/lm_large.arpa.gz data/lang data/lang_sw1_fsh_fg
  for x in train test; do
    steps/make_mfcc.sh --nj 50 --cmd "$train_cmd" data/$x exp/make_mfcc/$x mfcc
    steps/compute_cmvn_stats.sh data/$x exp/make_mfcc/$x mfcc
    utils/fix_data_dir.sh data/$x
  done
  utils/subset_data_dir.sh --first data/train 4 data/train_dev
  n=$[`cat data/train/segments | wc -l` - 4]
  utils/subset_data_dir.sh --last data/train $n data/train_nodev
  utils/data/remove_dup_utts.sh 300 data/train_nodev data/train_nodup
fi
if [ $stage -le 1 ]; then
  steps/train_mono.sh --nj 30 --cmd "$train_cmd" data/train_nodup data/lang exp/mono
  steps/align_si.sh --nj 30 --cmd "$train_cmd" data/train_nodup data/lang exp/mono exp/mono_ali
  steps/train_lda_mllt.sh --cmd "$train_cmd" 6000 14000 data/train_nodup data/lang exp/mono_ali exp/tri3
  steps/align_fmllr.sh --nj 30 --cmd "$train_cmd" data/train_nodup data/lang exp/tri3 exp/tri3_ali_nodup
  steps/train_sat.sh --cmd "$train_cmd" 11500 20000 data/train_nodup data/lang exp/tri3_ali_nodup exp/tri4
  (
    graph_dir=exp/tri4/graph_sw1_tg
    $train_cmd $graph_dir/mkgraph.log utils/mkgraph.sh data/lang_sw1_tg exp/tri4 $graph_dir
    steps/decode_fmllr.sh --nj 30 --cmd "$decode_cmd" --config conf/decode.config $graph_dir data/test exp/tri4/decode_test_sw1_tg
    steps/lmrescore_const_arpa.sh --cmd "$decode_cmd" data/lang_sw1_{tg,fsh_fg} data/test exp/tri4/decode_test_sw1_{tg,fsh_fg}
  ) &
  steps/align_fmllr.sh --nj 50 --cmd "$train_cmd" data/train_nodup data/lang exp/tri4 exp/tri4_ali_nodup
  wait
fi
if [ $stage -le 2 ]; then
  gmmdir=exp/tri4
  data_fmllr=data-fmllr-tri4
  dir=$data_fmllr/test
  steps/nnet/make_fmllr_feats.sh --nj 10 --cmd "$train_cmd" --transform-dir $gmmdir/decode_test_sw1_tg $dir data/test $gmmdir $dir/log $dir/data
  dir=$data_fmllr/train_nodup
  steps/nnet/make_fmllr_feats.sh --nj 10 --cmd "$train_cmd" --transform-dir ${gmmdir}_ali_nodup $dir data/train_nodup $gmmdir $dir/log $dir/data
  utils/subset_data_dir_tr_cv.sh $dir ${dir}_tr90 ${dir}_cv10
  dir=exp/dnn5b_pretrain-dbn
  $cuda_cmd $dir/log/pretrain_dbn.log steps/nnet/pretrain_dbn.sh --nn-depth 2 --hid-dim 64 --rbm-iter 1 $data_fmllr/train_nodup $dir
  dir=exp/dnn5b_pretrain-dbn_dnn
  ali=${gmmdir}_ali_nodup
  $cuda_cmd $dir/log/train_nnet.log \
    steps/nnet/train.sh --feature-transform exp/dnn5b_pretrain-dbn/final.feature_transform --dbn exp/dnn5b_pretrain-dbn/2.dbn \
    --hid-layers 0 --learn-rate 0.008 $data_fmllr/train_nodup_tr90 $data_fmllr/train_nodup_cv10 data/lang $ali $ali $dir
  steps/nnet/decode.sh --nj 20 --cmd "$decode_cmd" --config conf/decode_dnn.config --acwt 0.08333 \
    $gmmdir/graph_sw1_tg $data_fmllr/test $dir/decode_test_sw1_tg
  steps/lmrescore_const_arpa.sh --cmd "$decode_cmd" data/lang_sw1_{tg,fsh_fg} data/test $dir/decode_test_sw1_{tg,fsh_fg}
  steps/nnet/align.sh --nj 25 --cmd "$train_cmd" $data_fmllr/train_nodup data/lang $dir ${dir}_ali
fi
