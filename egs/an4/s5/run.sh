#!/usr/bin/env bash
# CMU AN4 (letters, digits, dates; 16 kHz, 84 speakers), from the corpus to a word error rate.

corpus_options() {
  cat <<EOF
  --corpus <dir>                  # AN4 in its public layout (etc/, wav/); without it github.com/cmusphinx/an4 is cloned into corpus/
EOF
}

. "$(dirname "${BASH_SOURCE[0]}")/utils/shared/recipe.sh" || exit 1  # options, `want`, `with_rbms`, `say_next`
# The features that the network sees, its decoding graph, and the GMMs that are scored beside it. Imported alignments come without GMMs.
data=data-fmllr graph=exp/tri3/graph gmms="mono tri1 tri2 tri3"
[ -z "$ali_dir" ] || data=data graph=exp/ali/graph gmms=""

if want 0 "corpus, language, language model"; then
  local/prepare_data.sh ${corpus:+--corpus "$corpus"}
  utils/prepare_lang.sh data/local/dict "<UNK>" data/local/lang data/lang
  utils/format_lm.sh data/lang data/local/lm.arpa data/local/dict/lexicon.txt data/lang_test
fi

if want 1 "features: MFCC"; then
  for set in train test; do
    steps/make_mfcc.sh --nj "$nj" --cmd "$cmd" data/$set exp/make_mfcc/$set mfcc
    utils/fix_data_dir.sh data/$set  # up to 1 % of the utterances may have unusable audio
    steps/compute_cmvn_stats.sh data/$set exp/make_mfcc/$set mfcc
  done
fi

if want 2 "alignments: GMMs up to speaker-adaptive training, or imported"; then
  if [ -n "$ali_dir" ]; then
    steps/import_ali.sh --nj "$nj" --cmd "$cmd" $ali_opts "$ali_dir" data/train data/lang exp/ali
    utils/mkgraph.sh data/lang_test exp/ali exp/ali/graph
  else
    steps/train_mono.sh --nj "$nj" --cmd "$cmd" ${seed:+--seed "$seed"} data/train data/lang exp/mono
    steps/align_si.sh --nj "$nj" --cmd "$cmd" data/train data/lang exp/mono exp/mono_ali
    utils/mkgraph.sh data/lang_test exp/mono exp/mono/graph
    steps/decode.sh --nj "$nj" --cmd "$cmd" --skip-scoring true exp/mono/graph data/test exp/mono/decode

    steps/train_deltas.sh --nj "$nj" --cmd "$cmd" ${seed:+--seed "$seed"} 1800 9000 data/train data/lang exp/mono_ali exp/tri1
    steps/align_si.sh --nj "$nj" --cmd "$cmd" data/train data/lang exp/tri1 exp/tri1_ali
    utils/mkgraph.sh data/lang_test exp/tri1 exp/tri1/graph
    steps/decode.sh --nj "$nj" --cmd "$cmd" --skip-scoring true exp/tri1/graph data/test exp/tri1/decode

    steps/train_lda_mllt.sh --nj "$nj" --cmd "$cmd" ${seed:+--seed "$seed"} 1800 9000 data/train data/lang exp/tri1_ali exp/tri2
    steps/align_si.sh --nj "$nj" --cmd "$cmd" data/train data/lang exp/tri2 exp/tri2_ali
    utils/mkgraph.sh data/lang_test exp/tri2 exp/tri2/graph
    steps/decode.sh --nj "$nj" --cmd "$cmd" --skip-scoring true exp/tri2/graph data/test exp/tri2/decode

    steps/train_sat.sh --nj "$nj" --cmd "$cmd" ${seed:+--seed "$seed"} 1800 9000 data/train data/lang exp/tri2_ali exp/tri3
    steps/align_fmllr.sh --nj "$nj" --cmd "$cmd" data/train data/lang exp/tri3 exp/tri3_ali
    utils/mkgraph.sh data/lang_test exp/tri3 exp/tri3/graph
    steps/decode_fmllr.sh --nj "$nj" --cmd "$cmd" --skip-scoring true exp/tri3/graph data/test exp/tri3/decode

    # data-fmllr: the features that tri3 sees, with the transforms of its alignments and of its decoding
    steps/nnet/make_fmllr_feats.sh --nj "$nj" --cmd "$cmd" --transform-dir exp/tri3_ali \
      data-fmllr/train data/train exp/tri3 exp/make_fmllr/train fmllr
    steps/nnet/make_fmllr_feats.sh --nj "$nj" --cmd "$cmd" --transform-dir exp/tri3/decode \
      data-fmllr/test data/test exp/tri3 exp/make_fmllr/test fmllr
  fi
fi

if want 3 "frame store"; then
  if [ -n "$ali_dir" ]; then
    steps/nnet/pack.sh --cmd "$cmd" --delta-opts "--delta-order=2" data/train exp/ali exp/dnn/store
  else
    steps/nnet/pack.sh --cmd "$cmd" --cmvn-opts "--norm-means=false" data-fmllr/train exp/tri3_ali exp/dnn/store
  fi
fi

if want 4 "RBM pretraining" && with_rbms; then
  steps/nnet/pretrain_dbn.sh --cmd "$cmd" --ngpu "$rbm_ngpu" --strategy "$strategy" --device "$device" ${seed:+--seed "$seed"} \
    --hid-layers 4 --hid-dim 512 exp/dnn/store exp/dbn
fi

if want 5 "network training"; then
  steps/nnet/train.sh --cmd "$cmd" --ngpu "$ngpu" --strategy "$strategy" --device "$device" \
    ${seed:+--seed "$seed" --randomizer-seed "$seed"} ${dbn:+--dbn exp/dbn} ${warmup:+--serial-warmup 1} \
    --hid-layers 4 --hid-dim 512 --optimizer ngsgd --schedule exponential --learn-rate 0.008 --final-learn-rate 0.0008 --num-epochs 8 \
    $train_opts exp/dnn/store exp/dnn
fi

if want 6 "decoding with the network"; then
  steps/decode.sh --nj "$nj" --cmd "$cmd" --device "$device" --skip-scoring true "$graph" "$data/test" exp/dnn/decode
fi

if want 7 "scoring"; then
  for system in $gmms dnn; do
    steps/score_kaldi.sh --cmd "$cmd" --min-lmwt 4 --max-lmwt 20 data/test "$graph" exp/$system/decode
  done
fi

if want 8 "report"; then
  pykaldist report exp
  say_next
fi
