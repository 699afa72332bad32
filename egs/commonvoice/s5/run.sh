#!/usr/bin/env bash
# Common Voice (sentences read by volunteers, 16 kHz), any of its languages, from a release to a word error rate.

corpus_options() {
  cat <<EOF
  --corpus <dir>                  # folder of a release, as commonvoice.mozilla.org gives it (needed)
  --language <code>               # such as de, tr, zh-CN: the folder of the release (needed)
  --lexicon graphemes|<file>      # letters as phones, or a word and its phones on each line ($lexicon)
  --config <file>                 # other sizes than those that go with the hours of speech, such as conf/stand_in.conf
EOF
}

language="" lexicon=graphemes short=10000 first=20000 gmm_opts="" minibatch=256 default_ngpu=1
totgauss="" leaves="" gauss="" hid_layers="" hid_dim="" num_epochs=""
. "$(dirname "${BASH_SOURCE[0]}")/utils/shared/recipe.sh" || exit 1  # options, `want`, `with_rbms`, `say_next`
case $lexicon in graphemes | /*) ;; *) lexicon=$OLDPWD/$lexicon ;; esac  # as the caller's folder has it
# The features that the network sees, its decoding graph, and the GMM that is scored beside it. Imported alignments come without GMMs.
data=data-fmllr graph=exp/tri3/graph systems="tri3 dnn"
[ -z "$ali_dir" ] || data=data graph=exp/ali/graph systems=dnn
# decoded SYSTEM SET: the folder of lattices; that of the development set, which chooses weight and penalty, ends in _dev
decoded() { if [ $2 = dev ]; then echo $1/decode_dev; else echo $1/decode; fi; }

if want 0 "corpus, language, language model"; then
  [ -n "$language" ] || { echo "run.sh: ERROR: --language is needed: the code of one that the release has, such as tr." >&2; exit 1; }
  local/prepare_data.sh --corpus "$corpus" --language "$language" --lexicon "$lexicon"
  utils/prepare_lang.sh data/local/dict "<UNK>" data/local/lang data/lang
  utils/train_lm.sh --order 3 --oov "<UNK>" --heldout-text data/dev/text data/train/text data/lang/words.txt data/local/lm.arpa.gz
  utils/format_lm.sh data/lang data/local/lm.arpa.gz data/local/dict/lexicon.txt data/lang_test
fi
if [ -f data/local/sizes ]; then  # those that no option has set
  while IFS='=' read -r name value; do [ -n "${!name}" ] || printf -v "$name" %s "$value"; done < data/local/sizes
fi

if want 1 "features: MFCC; subsets"; then
  for set in train dev test; do
    steps/make_mfcc.sh --nj "$nj" --cmd "$cmd" data/$set exp/make_mfcc/$set mfcc
    utils/fix_data_dir.sh data/$set  # up to 1 % of the utterances may have unusable audio
    steps/compute_cmvn_stats.sh data/$set exp/make_mfcc/$set mfcc
  done
  utils/subset_data_dir.sh --shortest data/train $short data/train_short  # easiest to align from a flat start
  utils/subset_data_dir.sh data/train $first data/train_first
fi

if want 2 "alignments: GMMs up to speaker-adaptive training, or imported"; then
  if [ -n "$ali_dir" ]; then
    steps/import_ali.sh --nj "$nj" --cmd "$cmd" $ali_opts "$ali_dir" data/train data/lang exp/ali
    utils/mkgraph.sh data/lang_test exp/ali exp/ali/graph
  else
    jobs=(--nj "$nj" --cmd "$cmd") train=(--nj "$nj" --cmd "$cmd" ${seed:+--seed "$seed"} $gmm_opts)
    steps/train_mono.sh "${train[@]}" --totgauss $totgauss data/train_short data/lang exp/mono
    steps/align_si.sh "${jobs[@]}" data/train_first data/lang exp/mono exp/mono_ali
    steps/train_deltas.sh "${train[@]}" $leaves $gauss data/train_first data/lang exp/mono_ali exp/tri1
    steps/align_si.sh "${jobs[@]}" data/train_first data/lang exp/tri1 exp/tri1_ali
    steps/train_lda_mllt.sh "${train[@]}" $leaves $gauss data/train_first data/lang exp/tri1_ali exp/tri2
    steps/align_si.sh "${jobs[@]}" data/train data/lang exp/tri2 exp/tri2_ali
    steps/train_sat.sh "${train[@]}" $leaves $gauss data/train data/lang exp/tri2_ali exp/tri3
    steps/align_fmllr.sh "${jobs[@]}" data/train data/lang exp/tri3 exp/tri3_ali
    utils/mkgraph.sh data/lang_test exp/tri3 exp/tri3/graph

    # data-fmllr: the features that tri3 sees, with the transforms of its alignments and of its decodings
    steps/nnet/make_fmllr_feats.sh "${jobs[@]}" --transform-dir exp/tri3_ali data-fmllr/train data/train exp/tri3 exp/make_fmllr/train fmllr
    for set in dev test; do
      steps/decode_fmllr.sh "${jobs[@]}" --skip-scoring true exp/tri3/graph data/$set "$(decoded exp/tri3 $set)"
      steps/nnet/make_fmllr_feats.sh "${jobs[@]}" --transform-dir "$(decoded exp/tri3 $set)" data-fmllr/$set data/$set exp/tri3 \
        exp/make_fmllr/$set fmllr
    done
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
    --hid-layers $hid_layers --hid-dim $hid_dim exp/dnn/store exp/dbn
fi

if want 5 "network training"; then
  steps/nnet/train.sh --cmd "$cmd" --ngpu "$ngpu" --strategy "$strategy" --device "$device" \
    ${seed:+--seed "$seed" --randomizer-seed "$seed"} ${dbn:+--dbn exp/dbn} ${warmup:+--serial-warmup 0.25} \
    --hid-layers $hid_layers --hid-dim $hid_dim --optimizer ngsgd --minibatch-size $minibatch \
    --schedule exponential --learn-rate 0.008 --final-learn-rate 0.0008 --num-epochs $num_epochs $train_opts exp/dnn/store exp/dnn
fi

if want 6 "decoding with the network"; then
  for set in dev test; do
    steps/decode.sh --nj "$nj" --cmd "$cmd" --device "$device" --skip-scoring true "$graph" $data/$set "$(decoded exp/dnn $set)"
  done
fi

if want 7 "scoring"; then
  for system in $systems; do  # the development set chooses weight and insertion penalty for the test set
    steps/score_kaldi.sh --cmd "$cmd" --min-lmwt 2 --max-lmwt 20 data/dev "$graph" exp/$system/decode_dev
    steps/score_kaldi.sh --cmd "$cmd" --min-lmwt 2 --max-lmwt 20 --dev-dir exp/$system/decode_dev data/test "$graph" exp/$system/decode
  done
fi

if want 8 "report"; then
  pykaldist report exp
  say_next
fi
