#!/usr/bin/env bash
# TIMIT (5 h of read sentences with the phones that were said, 16 kHz), from the corpus to a phone error rate. Words are phones here.

corpus_options() {
  cat <<EOF
  --corpus <dir>                  # the folder of LDC93S1, which has TRAIN/ and TEST/
  --check-counts true|false       # compare utterances and speakers with those of public recipes; a difference ends the recipe (false)
  --config <file>                 # other sizes, such as conf/stand_in.conf, for a minute of speech
EOF
}

check_counts=false leaves=2500 gauss=15000 mono_opts="" gmm_opts="" decode_opts="" hid_layers=6 hid_dim=1024 num_epochs=12 minibatch=256
. "$(dirname "${BASH_SOURCE[0]}")/utils/shared/recipe.sh" || exit 1  # options, `want`, `with_rbms`, `say_next`
# The features that the network sees, its decoding graph, and the GMMs that are scored beside it. Imported alignments come without GMMs.
data=data-fmllr graph=exp/tri3/graph gmms="mono tri1 tri2 tri3"
[ -z "$ali_dir" ] || data=data graph=exp/ali/graph gmms=""
# decoded SYSTEM SET: the folder of lattices; that of the development set, which chooses weight and penalty, ends in _dev
decoded() { if [ $2 = dev ]; then echo $1/decode_dev; else echo $1/decode; fi; }

if want 0 "corpus, phones, a bigram model of them"; then
  local/prepare_data.sh --corpus "$corpus"
  ! $check_counts || pykaldist check-counts local/counts.tsv data
  # silence is a phone that is transcribed and scored, not an optional one between words
  utils/prepare_lang.sh --sil-prob 0.0 --position-dependent-phones false --num-sil-states 3 data/local/dict sil data/local/lang data/lang
  utils/train_lm.sh --order 2 --smoothing witten-bell --heldout-text data/dev/text data/train/text data/local/dict/lexicon.txt \
    data/local/lm.arpa.gz
  utils/format_lm.sh data/lang data/local/lm.arpa.gz data/local/dict/lexicon.txt data/lang_test_bg
fi

if want 1 "features: MFCC"; then
  for set in train dev test; do
    steps/make_mfcc.sh --nj "$nj" --cmd "$cmd" data/$set exp/make_mfcc/$set mfcc
    utils/fix_data_dir.sh data/$set  # up to 1 % of the utterances may have unusable audio
    steps/compute_cmvn_stats.sh data/$set exp/make_mfcc/$set mfcc
  done
fi

if want 2 "alignments: GMMs up to speaker-adaptive training, or imported"; then
  if [ -n "$ali_dir" ]; then
    steps/import_ali.sh --nj "$nj" --cmd "$cmd" $ali_opts "$ali_dir" data/train data/lang exp/ali
    utils/mkgraph.sh data/lang_test_bg exp/ali exp/ali/graph
  else
    jobs=(--nj "$nj" --cmd "$cmd") train=(--nj "$nj" --cmd "$cmd" ${seed:+--seed "$seed"} $gmm_opts)
    steps/train_mono.sh "${train[@]}" $mono_opts data/train data/lang exp/mono
    steps/align_si.sh "${jobs[@]}" --boost-silence 1.25 data/train data/lang exp/mono exp/mono_ali
    steps/train_deltas.sh "${train[@]}" $leaves $gauss data/train data/lang exp/mono_ali exp/tri1
    steps/align_si.sh "${jobs[@]}" data/train data/lang exp/tri1 exp/tri1_ali
    steps/train_lda_mllt.sh "${train[@]}" --splice-opts "--left-context=3 --right-context=3" $leaves $gauss data/train data/lang \
      exp/tri1_ali exp/tri2
    steps/align_si.sh "${jobs[@]}" data/train data/lang exp/tri2 exp/tri2_ali
    steps/train_sat.sh "${train[@]}" $leaves $gauss data/train data/lang exp/tri2_ali exp/tri3
    steps/align_fmllr.sh "${jobs[@]}" data/train data/lang exp/tri3 exp/tri3_ali

    # data-fmllr: the features that tri3 sees, with the transforms of its alignments and of its decodings
    steps/nnet/make_fmllr_feats.sh "${jobs[@]}" --transform-dir exp/tri3_ali data-fmllr/train data/train exp/tri3 exp/make_fmllr/train fmllr
    for system in $gmms; do
      utils/mkgraph.sh data/lang_test_bg exp/$system exp/$system/graph
      decode=decode.sh
      [ $system != tri3 ] || decode=decode_fmllr.sh
      for set in dev test; do
        steps/$decode "${jobs[@]}" $decode_opts --skip-scoring true exp/$system/graph data/$set "$(decoded exp/$system $set)"
        [ $system != tri3 ] || steps/nnet/make_fmllr_feats.sh "${jobs[@]}" --transform-dir "$(decoded exp/tri3 $set)" \
          data-fmllr/$set data/$set exp/tri3 exp/make_fmllr/$set fmllr
      done
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
    ${seed:+--seed "$seed" --randomizer-seed "$seed"} ${dbn:+--dbn exp/dbn} ${warmup:+--serial-warmup 1} \
    --hid-layers $hid_layers --hid-dim $hid_dim --optimizer ngsgd --minibatch-size $minibatch \
    --schedule exponential --learn-rate 0.008 --final-learn-rate 0.0008 --num-epochs $num_epochs $train_opts exp/dnn/store exp/dnn
fi

if want 6 "decoding with the network"; then
  for set in dev test; do
    steps/decode.sh --nj "$nj" --cmd "$cmd" --device "$device" $decode_opts --skip-scoring true "$graph" $data/$set "$(decoded exp/dnn $set)"
  done
fi

if want 7 "scoring, of 39 phones (local/wer_output_filter)"; then
  for system in $gmms dnn; do  # the development set chooses weight and insertion penalty for the test set
    steps/score_kaldi.sh --cmd "$cmd" --min-lmwt 1 --max-lmwt 10 data/dev "$graph" exp/$system/decode_dev
    steps/score_kaldi.sh --cmd "$cmd" --min-lmwt 1 --max-lmwt 10 --dev-dir exp/$system/decode_dev data/test "$graph" exp/$system/decode
  done
fi

if want 8 "report: phone error rates"; then
  pykaldist report exp
  say_next
fi
