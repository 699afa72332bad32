#!/usr/bin/env bash
# Of wsj's kind: lattices rescored in all modes, decoded with a large model at once, and combined; pronunciations counted; SAT upon SAT.
stage=0
train=true
decode=true
. ./cmd.sh
. utils/parse_options.sh

if [ $stage -le 0 ]; then
  utils/prepare_lang.sh data/local/dict "<SIL>" data/local/lang_tmp_nosp data/lang_nosp || exit 1
  for lm in small large; do
    mkdir -p data/lang_nosp_test_$lm
    cp -r data/lang_nosp/* data/lang_nosp_test_$lm
    . ./path.sh
    gunzip -c data/local/lm/lm_$lm.arpa.gz |
      arpa2fst --disambig-symbol=#0 --read-symbol-table=data/lang_nosp/words.txt - data/lang_nosp_test_$lm/G.fst || exit 1
    utils/validate_lang.pl --skip-determinization-check data/lang_nosp_test_$lm || exit 1
  done
  for x in test train; do
    steps/make_mfcc.sh --cmd "$train_cmd" --nj 20 data/$x || exit 1
    steps/compute_cmvn_stats.sh data/$x || exit 1
  done
  utils/subset_data_dir.sh --first data/train 7138 data/train_si84 || exit 1
  utils/subset_data_dir.sh --shortest data/train_si84 12 data/train_si84_short || exit 1
fi
if [ $stage -le 1 ]; then
  if $train; then
    steps/train_mono.sh --boost-silence 1.25 --nj 10 --cmd "$train_cmd" data/train_si84_short data/lang_nosp exp/mono0a || exit 1
    steps/align_si.sh --boost-silence 1.25 --nj 10 --cmd "$train_cmd" data/train_si84 data/lang_nosp exp/mono0a exp/mono0a_ali || exit 1
    steps/train_deltas.sh --boost-silence 1.25 --cmd "$train_cmd" 2000 10000 data/train_si84 data/lang_nosp exp/mono0a_ali exp/tri1 || exit 1
  fi
  if $decode; then
    utils/mkgraph.sh data/lang_nosp_test_small exp/tri1 exp/tri1/graph_nosp_small || exit 1
    nspk=$(wc -l <data/test/spk2utt)
    steps/decode.sh --nj $nspk --cmd "$decode_cmd" exp/tri1/graph_nosp_small data/test exp/tri1/decode_nosp_small || exit 1
    for mode in 1 2 3 4 5; do
      steps/lmrescore.sh --mode $mode --cmd "$decode_cmd" data/lang_nosp_test_{small,large} data/test \
        exp/tri1/decode_nosp_small exp/tri1/decode_nosp_small_large$mode || exit 1
    done
    steps/decode_biglm.sh --nj $nspk --cmd "$decode_cmd" exp/tri1/graph_nosp_small data/lang_nosp_test_{small,large}/G.fst \
      data/test exp/tri1/decode_nosp_small_large_biglm || exit 1
  fi
fi
if [ $stage -le 2 ]; then
  steps/align_si.sh --nj 10 --cmd "$train_cmd" data/train data/lang_nosp exp/tri1 exp/tri1_ali || exit 1
  steps/train_sat.sh --cmd "$train_cmd" 4200 40000 data/train data/lang_nosp exp/tri1_ali exp/tri3b || exit 1
  steps/get_prons.sh --cmd "$train_cmd" data/train data/lang_nosp exp/tri3b || exit 1
  utils/dict_dir_add_pronprobs.sh --max-normalize true data/local/dict exp/tri3b/pron_counts_nowb.txt exp/tri3b/sil_counts_nowb.txt \
    exp/tri3b/pron_bigram_counts_nowb.txt data/local/dict_prons || exit 1
  utils/prepare_lang.sh data/local/dict_prons "<SIL>" data/local/lang_tmp data/lang || exit 1
  for lm in small large; do
    mkdir -p data/lang_test_$lm
    cp -r data/lang/* data/lang_test_$lm || exit 1
    cp data/lang_nosp_test_$lm/G.* data/lang_test_$lm
  done
  steps/train_sat.sh --cmd "$train_cmd" 4200 40000 data/train data/lang exp/tri3b exp/tri4b || exit 1
  utils/mkgraph.sh data/lang_test_small exp/tri4b exp/tri4b/graph_small || exit 1
  steps/decode_fmllr.sh --nj 8 --cmd "$decode_cmd" exp/tri4b/graph_small data/test exp/tri4b/decode_small || exit 1
  steps/lmrescore.sh --cmd "$decode_cmd" data/lang_test_small data/lang_test_large data/test exp/tri4b/decode_{small,large} || exit 1
fi
