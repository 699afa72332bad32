#!/usr/bin/env bash
# Asterisk's voice prompts (8 kHz telephone speech in five languages), from nothing to a word error rate: one system for all of them.

corpus_options() {
  cat <<EOF
  --corpus <dir>                  # folder with the prompts, in the layout of /usr/share/asterisk/sounds; else they are looked for
                                  # there, or fetched (Debian's packages of 98 MB, or the public tarballs) into corpus/
  --languages <list>              # some of them only ("$languages")
EOF
}

languages="en es fr it ru" default_ngpu=4 default_strategy=bmuf
. "$(dirname "${BASH_SOURCE[0]}")/utils/shared/recipe.sh" || exit 1  # options, `want`, `with_rbms`, `say_next`
# The network's alignments and decoding graph, and the GMMs that are scored beside it. Imported alignments come without GMMs.
ali=exp/tri1_ali graph=exp/tri1/graph gmms="mono tri1"
[ -z "$ali_dir" ] || ali=exp/ali graph=exp/ali/graph gmms=""

if want 0 "corpus, language, language model"; then
  local/prepare_data.sh ${corpus:+--corpus "$corpus"} --languages "$languages"
  utils/prepare_lang.sh data/local/dict "<UNK>" data/local/lang data/lang
  utils/train_lm.sh --order 3 data/train/text data/lang/words.txt data/local/lm.arpa.gz
  utils/format_lm.sh data/lang data/local/lm.arpa.gz data/local/dict/lexicon.txt data/lang_test
fi

if want 1 "features: MFCC"; then
  for set in train dev test; do
    steps/make_mfcc.sh --nj "$nj" --cmd "$cmd" data/$set exp/make_mfcc/$set mfcc
    utils/fix_data_dir.sh data/$set  # up to 1 % of the utterances may have unusable audio
    steps/compute_cmvn_stats.sh data/$set exp/make_mfcc/$set mfcc
  done
fi

if want 2 "alignments: a monophone and a triphone GMM, or imported"; then
  if [ -n "$ali_dir" ]; then
    steps/import_ali.sh --nj "$nj" --cmd "$cmd" $ali_opts "$ali_dir" data/train data/lang exp/ali
    utils/mkgraph.sh data/lang_test exp/ali exp/ali/graph
  else
    steps/train_mono.sh --nj "$nj" --cmd "$cmd" ${seed:+--seed "$seed"} data/train data/lang exp/mono
    steps/align_si.sh --nj "$nj" --cmd "$cmd" data/train data/lang exp/mono exp/mono_ali
    utils/mkgraph.sh data/lang_test exp/mono exp/mono/graph
    steps/decode.sh --nj "$nj" --cmd "$cmd" --skip-scoring true exp/mono/graph data/dev exp/mono/decode_dev
    steps/decode.sh --nj "$nj" --cmd "$cmd" --skip-scoring true exp/mono/graph data/test exp/mono/decode

    steps/train_deltas.sh --nj "$nj" --cmd "$cmd" ${seed:+--seed "$seed"} 1200 8000 data/train data/lang exp/mono_ali exp/tri1
    steps/align_si.sh --nj "$nj" --cmd "$cmd" data/train data/lang exp/tri1 exp/tri1_ali
    utils/mkgraph.sh data/lang_test exp/tri1 exp/tri1/graph
    steps/decode.sh --nj "$nj" --cmd "$cmd" --skip-scoring true exp/tri1/graph data/dev exp/tri1/decode_dev
    steps/decode.sh --nj "$nj" --cmd "$cmd" --skip-scoring true exp/tri1/graph data/test exp/tri1/decode
  fi
fi

if want 3 "frame store"; then
  steps/nnet/pack.sh --cmd "$cmd" --delta-opts "--delta-order=2" data/train "$ali" exp/dnn/store
fi

if want 4 "RBM pretraining" && with_rbms; then
  steps/nnet/pretrain_dbn.sh --cmd "$cmd" --ngpu "$rbm_ngpu" --strategy "$strategy" --device "$device" ${seed:+--seed "$seed"} \
    --hid-layers 3 --hid-dim 384 exp/dnn/store exp/dbn
fi

if want 5 "network training"; then
  steps/nnet/train.sh --cmd "$cmd" --ngpu "$ngpu" --strategy "$strategy" --device "$device" \
    ${seed:+--seed "$seed" --randomizer-seed "$seed"} ${dbn:+--dbn exp/dbn} ${warmup:+--serial-warmup 1} \
    --hid-layers 3 --hid-dim 384 --optimizer ngsgd \
    --schedule exponential --learn-rate 0.03 --final-learn-rate 0.002 --decay-within true --num-epochs 2 $train_opts exp/dnn/store exp/dnn
fi

if want 6 "decoding with the network"; then
  steps/decode.sh --nj "$nj" --cmd "$cmd" --device "$device" --acwt 0.15 --skip-scoring true "$graph" data/dev exp/dnn/decode_dev
  steps/decode.sh --nj "$nj" --cmd "$cmd" --device "$device" --acwt 0.15 --skip-scoring true "$graph" data/test exp/dnn/decode
fi

if want 7 "scoring"; then
  for system in $gmms dnn; do
    steps/score_kaldi.sh --cmd "$cmd" --min-lmwt 2 --max-lmwt 20 data/dev "$graph" exp/$system/decode_dev
    steps/score_kaldi.sh --cmd "$cmd" --min-lmwt 2 --max-lmwt 20 --dev-dir exp/$system/decode_dev data/test "$graph" exp/$system/decode  # those best on data/dev
  done
fi

if want 8 "report"; then
  pykaldist report exp
  say_next
fi
