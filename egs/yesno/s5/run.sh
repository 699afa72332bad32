#!/usr/bin/env bash
# yesno (one speaker says yes and no in Hebrew, 8 kHz): every stage in a minute, to see that everything works.

corpus_options() {
  cat <<EOF
  --corpus <dir>                  # folder with waves_yesno (OpenSLR 1); without it the public archive is fetched into corpus/
EOF
}

. "$(dirname "${BASH_SOURCE[0]}")/utils/recipe.sh" || exit 1  # options, `want`, and the functions that stages call
systems data mono
shape="--hid-layers 2 --hid-dim 128"  # of the network
decode_opts="--lattice-beam 4"

if want 0 "corpus, language, language model"; then
  local/prepare_data.sh ${corpus:+--corpus "$corpus"}
  utils/prepare_lang.sh data/local/dict "<SIL>" data/local/lang data/lang
  utils/format_lm.sh data/lang data/local/lm.arpa data/local/dict/lexicon.txt data/lang_test
fi

if want 1 "features: MFCC"; then
  make_mfcc
fi

if want 2 "alignments: a monophone GMM's, or imported"; then
  if [ -n "$ali_dir" ]; then
    import_ali
  else
    train_gmm mono train_mono --totgauss 400 --num-starts 4 data/train data/lang
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
