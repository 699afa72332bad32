#!/usr/bin/env bash
# CMU AN4 (letters, digits, dates; 16 kHz, 84 speakers), from the corpus to a word error rate.

corpus_options() {
  cat <<EOF
  --corpus <dir>                  # AN4 in its public layout (etc/, wav/); without it github.com/cmusphinx/an4 is cloned into corpus/
EOF
}

. "$(dirname "${BASH_SOURCE[0]}")/utils/recipe.sh" || exit 1  # options, `want`, and the functions that stages call
systems data-fmllr mono tri1 tri2 tri3
shape="--hid-layers 4 --hid-dim 512"  # of the network

if want 0 "corpus, language, language model"; then
  local/prepare_data.sh ${corpus:+--corpus "$corpus"}
  utils/prepare_lang.sh data/local/dict "<UNK>" data/local/lang data/lang
  utils/format_lm.sh data/lang data/local/lm.arpa data/local/dict/lexicon.txt data/lang_test
fi

if want 1 "features: MFCC"; then
  make_mfcc
fi

if want 2 "alignments: GMMs up to speaker-adaptive training, or imported"; then
  if [ -n "$ali_dir" ]; then
    import_ali
  else
    train_gmm mono train_mono data/train data/lang
    train_gmm tri1 train_deltas 1800 9000 data/train data/lang exp/mono_ali
    train_gmm tri2 train_lda_mllt 1800 9000 data/train data/lang exp/tri1_ali
    train_gmm tri3 train_sat 1800 9000 data/train data/lang exp/tri2_ali
    make_fmllr tri3
  fi
fi

if want 3 "frame store"; then
  pack
fi

if want 4 "RBM pretraining"; then
  pretrain_dbn $shape
fi

if want 5 "network training"; then
  train_dnn $shape --optimizer ngsgd --schedule exponential --learn-rate 0.008 --final-learn-rate 0.0008 --num-epochs 8
fi

if want 6 "decoding with the network"; then
  decode_dnn
fi

if want 7 "scoring"; then
  score
fi

if want 8 "report"; then
  report
fi
