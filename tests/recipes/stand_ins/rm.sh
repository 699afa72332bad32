#!/usr/bin/env bash
# Of rm's kind: a grammar compiled by hand, test sets put together, many more jobs than speakers, deltas to SAT, transforms of another decoding.
. ./cmd.sh
. ./path.sh
set -e

utils/prepare_lang.sh data/local/dict '<SIL>' data/local/lang data/lang
cp -r data/lang data/lang_ug
awk '{ for (i = 2; i <= NF; i++) { n[$i]++; all++ } all++; ends++ }
  END { for (w in n) print "0 0", w, w, -log(n[w] / all); print 0, -log(ends / all) }' data/train/text |
  fstcompile --isymbols=data/lang/words.txt --osymbols=data/lang/words.txt --keep_isymbols=false --keep_osymbols=false |
  fstarcsort --sort_type=ilabel > data/lang_ug/G.fst
fstisstochastic data/lang_ug/G.fst || echo "G is not stochastic"
fsttablecompose data/lang_ug/L_disambig.fst data/lang_ug/G.fst | fstdeterminize > /dev/null
fsttablecompose data/lang_ug/L.fst data/lang_ug/G.fst | fstisstochastic || echo "LG is not stochastic"
utils/format_lm.sh data/lang data/local/lm/lm_small.arpa.gz data/local/dict/lexicon.txt data/lang_test

utils/subset_data_dir.sh --first data/test 2 data/test_mar87
utils/subset_data_dir.sh --last data/test 2 data/test_oct87
for x in test_mar87 test_oct87 train; do
  steps/make_mfcc.sh --nj 8 --cmd "$train_cmd" data/$x exp/make_feat/$x mfcc
  steps/compute_cmvn_stats.sh data/$x exp/make_feat/$x mfcc
done
rm -r data/test
utils/combine_data.sh data/test data/test_{mar87,oct87}
steps/compute_cmvn_stats.sh data/test exp/make_feat/test mfcc
utils/subset_data_dir.sh data/train 1000 data/train.1k

steps/train_mono.sh --nj 4 --cmd "$train_cmd" data/train.1k data/lang exp/mono
utils/mkgraph.sh data/lang_test exp/mono exp/mono/graph
steps/decode.sh --config conf/decode.config --nj 20 --cmd "$decode_cmd" exp/mono/graph data/test exp/mono/decode
steps/align_si.sh --nj 8 --cmd "$train_cmd" data/train data/lang exp/mono exp/mono_ali

steps/train_lda_mllt.sh --cmd "$train_cmd" --splice-opts "--left-context=3 --right-context=3" \
  1800 9000 data/train data/lang exp/mono_ali exp/tri2b
utils/mkgraph.sh data/lang_test exp/tri2b exp/tri2b/graph
steps/decode.sh --config conf/decode.config --nj 20 --cmd "$decode_cmd" exp/tri2b/graph data/test exp/tri2b/decode
steps/align_si.sh --nj 8 --cmd "$train_cmd" --use-graphs true data/train data/lang exp/tri2b exp/tri2b_ali

steps/train_sat.sh 1800 9000 data/train data/lang exp/tri2b_ali exp/tri3b
utils/mkgraph.sh data/lang_test exp/tri3b exp/tri3b/graph
steps/decode_fmllr.sh --config conf/decode.config --nj 20 --cmd "$decode_cmd" exp/tri3b/graph data/test exp/tri3b/decode
(
  utils/mkgraph.sh data/lang_ug exp/tri3b exp/tri3b/graph_ug
  steps/decode.sh --config conf/decode.config --nj 20 --cmd "$decode_cmd" --transform-dir exp/tri3b/decode \
    exp/tri3b/graph_ug data/test exp/tri3b/decode_ug
)
steps/align_fmllr.sh --nj 8 --cmd "$train_cmd" --use-graphs true data/train data/lang exp/tri3b exp/tri3b_ali
