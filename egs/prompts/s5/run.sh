#!/usr/bin/env bash
# Asterisk's voice prompts (8 kHz telephone speech in five languages), from nothing to a word error rate: one system for all of them.

corpus_options() {
  cat <<EOF
  --corpus <dir>                  # folder with the prompts, in the layout of /usr/share/asterisk/sounds; else they are looked for
                                  # there, or fetched (Debian's packages of 98 MB, or the public tarballs) into corpus/
  --languages <list>              # some of them only ("$languages")
EOF
}

languages="en es fr it ru" default_ngpu=4
. "$(dirname "${BASH_SOURCE[0]}")/utils/recipe.sh" || exit 1  # options, `want`, and the functions that stages call
systems data mono tri1
tests=(dev test)
shape="--hid-layers 4 --hid-dim 256"  # of the network

if want 0 "corpus, language, language model"; then
  local/prepare_data.sh ${corpus:+--corpus "$corpus"} --languages "$languages"
  utils/prepare_lang.sh data/local/dict "<UNK>" data/local/lang data/lang
  utils/train_lm.sh --order 3 data/train/text data/lang/words.txt data/local/lm.arpa.gz
  utils/format_lm.sh data/lang data/local/lm.arpa.gz data/local/dict/lexicon.txt data/lang_test
fi

if want 1 "features: MFCC"; then
  make_mfcc
fi

if want 2 "alignments: a monophone and a triphone GMM, or imported"; then
  if [ -n "$ali_dir" ]; then
    import_ali
  else
    train_gmm mono train_mono --totgauss 2000 data/train data/lang
    train_gmm tri1 train_deltas 1000 6000 data/train data/lang exp/mono_ali
  fi
fi

if want 3 "frame store"; then
  pack
fi

if want 4 "RBM pretraining"; then
  pretrain_dbn $shape
fi

if want 5 "network training"; then
  train_dnn $shape --optimizer ngsgd --schedule exponential --learn-rate 0.008 --final-learn-rate 0.0008 --num-epochs 6
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
