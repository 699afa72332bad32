#!/usr/bin/env bash
# Of an4's kind: audio by sph2pipe, a model of trigrams that is made here, monophones and triphones, systems that align for the next.
. ./cmd.sh
. ./path.sh
njobs=20
. utils/parse_options.sh
set -e

utils/prepare_lang.sh data/local/dict '<SIL>' data/local/lang data/lang
utils/train_lm.sh --order 3 data/train/text data/local/dict/lexicon.txt data/local/lm/lm.arpa.gz
utils/format_lm.sh data/lang data/local/lm/lm.arpa.gz data/local/dict/lexicon.txt data/lang_test

for x in train test; do
  steps/make_mfcc.sh --cmd "$train_cmd" --nj $njobs data/$x exp/make_mfcc/$x mfcc
  steps/compute_cmvn_stats.sh data/$x exp/make_mfcc/$x mfcc
done

steps/train_mono.sh --nj $njobs --cmd "$train_cmd" data/train data/lang exp/mono
utils/mkgraph.sh --mono data/lang_test exp/mono exp/mono/graph
steps/decode.sh --nj $njobs --cmd "$decode_cmd" exp/mono/graph data/test exp/mono/decode
steps/align_si.sh --nj $njobs --cmd "$train_cmd" data/train data/lang exp/mono exp/mono_ali

steps/train_deltas.sh --cmd "$train_cmd" 1800 9000 data/train data/lang exp/mono_ali exp/tri1
utils/mkgraph.sh data/lang_test exp/tri1 exp/tri1/graph
steps/decode.sh --nj $njobs --cmd "$decode_cmd" exp/tri1/graph data/test exp/tri1/decode
steps/align_si.sh --nj $njobs --cmd "$train_cmd" --use-graphs true data/train data/lang exp/tri1 exp/tri1_ali
for x in exp/*/decode*; do [ -d $x ] && grep WER $x/wer_* | utils/best_wer.sh; done
