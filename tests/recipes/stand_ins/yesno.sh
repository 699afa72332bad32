#!/usr/bin/env bash
# Of yesno's kind: monophones without position in the word, a handful of words, one job.
train_cmd="utils/run.pl"
decode_cmd="utils/run.pl"
. ./path.sh || exit 1

utils/prepare_lang.sh --position-dependent-phones false data/local/dict "<SIL>" data/local/lang data/lang || exit 1
cp -r data/lang data/lang_test_tg
gunzip -c data/local/lm/lm_small.arpa.gz | arpa2fst --disambig-symbol=#0 --read-symbol-table=data/lang/words.txt - data/lang_test_tg/G.fst || exit 1
fstisstochastic data/lang_test_tg/G.fst

for x in train test; do
  steps/make_mfcc.sh --nj 1 data/$x exp/make_mfcc/$x mfcc
  steps/compute_cmvn_stats.sh data/$x exp/make_mfcc/$x mfcc
  utils/fix_data_dir.sh data/$x
done

steps/train_mono.sh --nj 1 --cmd "$train_cmd" --totgauss 400 data/train data/lang exp/mono0a || exit 1
utils/mkgraph.sh data/lang_test_tg exp/mono0a exp/mono0a/graph_tgpr || exit 1
steps/decode.sh --nj 1 --cmd "$decode_cmd" exp/mono0a/graph_tgpr data/test exp/mono0a/decode_test || exit 1
for x in exp/*/decode*; do [ -d $x ] && grep WER $x/wer_* | utils/best_wer.sh; done
