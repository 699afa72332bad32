#!/usr/bin/env bash
# yesno (one speaker says yes and no in Hebrew, 8 kHz): every stage in a minute, to see that everything works.

corpus_options() {
  cat <<EOF
  --corpus <dir>                  # folder with waves_yesno (OpenSLR 1); without it the public archive is fetched into corpus/
EOF
}

. "$(dirname "${BASH_SOURCE[0]}")/utils/shared/recipe.sh" || exit 1  # options, `want`, `with_rbms`, `say_next`
# The network's alignments and decoding graph, and the GMMs that are scored beside it. Imported alignments come without GMMs.
ali=exp/mono_ali graph=exp/mono/graph gmms="mono"
[ -z "$ali_dir" ] || ali=exp/ali graph=exp/ali/graph gmms=""

if want 0 "corpus, language, language model"; then
  local/prepare_data.sh ${corpus:+--corpus "$corpus"}
  utils/prepare_lang.sh data/local/dict "<SIL>" data/local/lang data/lang
  utils/format_lm.sh data/lang data/local/lm.arpa data/local/dict/lexicon.txt data/lang_test
fi

if want 1 "features: MFCC"; then
  for set in train test; do
    steps/make_mfcc.sh --nj "$nj" --cmd "$cmd" data/$set exp/make_mfcc/$set mfcc
    utils/fix_data_dir.sh data/$set  # up to 1 % of the utterances may have unusable audio
    steps/compute_cmvn_stats.sh data/$set exp/make_mfcc/$set mfcc
  done
fi

if want 2 "alignments: a monophone GMM's, or imported"; then
  if [ -n "$ali_dir" ]; then
    steps/import_ali.sh --nj "$nj" --cmd "$cmd" $ali_opts "$ali_dir" data/train data/lang exp/ali
    utils/mkgraph.sh data/lang_test exp/ali exp/ali/graph
  else
    steps/train_mono.sh --nj "$nj" --cmd "$cmd" ${seed:+--seed "$seed"} --totgauss 400 data/train data/lang exp/mono
    steps/align_si.sh --nj "$nj" --cmd "$cmd" data/train data/lang exp/mono exp/mono_ali
    utils/mkgraph.sh data/lang_test exp/mono exp/mono/graph
    steps/decode.sh --nj "$nj" --cmd "$cmd" --skip-scoring true --lattice-beam 4 exp/mono/graph data/test exp/mono/decode
  fi
fi

if want 3 "frame store"; then
  steps/nnet/pack.sh --cmd "$cmd" --delta-opts "--delta-order=2" data/train "$ali" exp/dnn/store
fi

if want 4 "RBM pretraining" && with_rbms; then
  steps/nnet/pretrain_dbn.sh --cmd "$cmd" --ngpu "$rbm_ngpu" --strategy "$strategy" --device "$device" ${seed:+--seed "$seed"} \
    --hid-layers 2 --hid-dim 128 exp/dnn/store exp/dbn
fi

if want 5 "network training"; then
  steps/nnet/train.sh --cmd "$cmd" --ngpu "$ngpu" --strategy "$strategy" --device "$device" \
    ${seed:+--seed "$seed" --randomizer-seed "$seed"} ${dbn:+--dbn exp/dbn} ${warmup:+--serial-warmup 1} \
    --hid-layers 2 --hid-dim 128 --optimizer ngsgd --schedule exponential --learn-rate 0.008 --final-learn-rate 0.0008 --num-epochs 8 \
    $train_opts exp/dnn/store exp/dnn
fi

if want 6 "decoding with the network"; then
  steps/decode.sh --nj "$nj" --cmd "$cmd" --device "$device" --skip-scoring true --lattice-beam 4 "$graph" data/test exp/dnn/decode
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
