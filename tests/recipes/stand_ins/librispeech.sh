#!/usr/bin/env bash
# Of librispeech's kind: a small model in the graph, lattices rescored with larger ones, pronunciations counted, SAT made quickly anew.
stage=1
. ./cmd.sh
. ./path.sh
. parse_options.sh
set -e

if [ $stage -le 1 ]; then
  utils/prepare_lang.sh data/local/dict "<SIL>" data/local/lang_tmp_nosp data/lang_nosp
  for x in test train; do
    steps/make_mfcc.sh --cmd "$train_cmd" --nj 40 data/$x exp/make_mfcc/$x mfcc
    steps/compute_cmvn_stats.sh data/$x exp/make_mfcc/$x mfcc
  done
  utils/subset_data_dir.sh --shortest data/train 500 data/train_500short
fi
if [ $stage -le 2 ]; then
  steps/train_mono.sh --boost-silence 1.25 --nj 20 --cmd "$train_cmd" data/train_500short data/lang_nosp exp/mono
  steps/align_si.sh --boost-silence 1.25 --nj 10 --cmd "$train_cmd" data/train data/lang_nosp exp/mono exp/mono_ali
  steps/train_lda_mllt.sh --cmd "$train_cmd" --splice-opts "--left-context=3 --right-context=3" \
    2500 15000 data/train data/lang_nosp exp/mono_ali exp/tri2b
  steps/align_si.sh --nj 10 --cmd "$train_cmd" --use-graphs true data/train data/lang_nosp exp/tri2b exp/tri2b_ali
  steps/train_sat.sh --cmd "$train_cmd" 2500 15000 data/train data/lang_nosp exp/tri2b_ali exp/tri3b
fi
if [ $stage -le 3 ]; then
  steps/get_prons.sh --cmd "$train_cmd" data/train data/lang_nosp exp/tri3b
  utils/dict_dir_add_pronprobs.sh --max-normalize true data/local/dict exp/tri3b/pron_counts_nowb.txt exp/tri3b/sil_counts_nowb.txt \
    exp/tri3b/pron_bigram_counts_nowb.txt data/local/dict_prons
  utils/prepare_lang.sh data/local/dict_prons "<SIL>" data/local/lang_tmp data/lang
  for lm in small medium; do
    mkdir -p data/lang_test_tg$lm
    cp -r data/lang/* data/lang_test_tg$lm
    gunzip -c data/local/lm/lm_$lm.arpa.gz |
      arpa2fst --disambig-symbol=#0 --read-symbol-table=data/lang/words.txt - data/lang_test_tg$lm/G.fst
    utils/validate_lang.pl --skip-determinization-check data/lang_test_tg$lm
  done
  utils/build_const_arpa_lm.sh data/local/lm/lm_large.arpa.gz data/lang data/lang_test_tglarge
  steps/align_fmllr.sh --nj 40 --cmd "$train_cmd" data/train data/lang exp/tri3b exp/tri3b_ali
  steps/train_quick.sh --cmd "$train_cmd" 7000 150000 data/train data/lang exp/tri3b_ali exp/tri6b
fi
if [ $stage -le 4 ]; then
  utils/mkgraph.sh data/lang_test_tgsmall exp/tri6b exp/tri6b/graph_tgsmall
  steps/decode_fmllr.sh --nj 20 --cmd "$decode_cmd" exp/tri6b/graph_tgsmall data/test exp/tri6b/decode_tgsmall_test
  steps/lmrescore.sh --cmd "$decode_cmd" data/lang_test_{tgsmall,tgmedium} data/test exp/tri6b/decode_{tgsmall,tgmedium}_test
  steps/lmrescore_const_arpa.sh --cmd "$decode_cmd" data/lang_test_{tgsmall,tglarge} data/test exp/tri6b/decode_{tgsmall,tglarge}_test
fi
