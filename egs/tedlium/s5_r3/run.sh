#!/usr/bin/env bash
# TED-LIUM release 3 (452 hours of talks, 16 kHz), from the corpus to word error rates with the small and the big 4-gram model.

corpus_options() {
  cat <<EOF
  --corpus <dir>                  # the folder with legacy/ and TEDLIUM.152k.dic (OpenSLR 51), and the models (local/prepare_data.sh); else fetched
  --check-counts true|false       # compare utterances, talks and hours with those that are published; a difference ends the recipe (false)
  --config <file>                 # other sizes, such as conf/stand_in.conf, for a minute of speech
EOF
}

check_counts=false default_ngpu=4 short=10000 leaves=(2500 4000 5000) gauss=(30000 50000 100000) mono_opts="" gmm_opts=""
hid_layers=6 hid_dim=2048 minibatch=1024 num_epochs=8
. "$(dirname "${BASH_SOURCE[0]}")/utils/shared/recipe.sh" || exit 1  # options, `want`, `with_rbms`, `say_next`
# The features that the network sees, its decoding graph, and the GMM that is scored beside it. Imported alignments come without GMMs.
data=data-fmllr graph=exp/tri3/graph lang=data/lang systems="tri3 dnn"
[ -z "$ali_dir" ] || data=data graph=exp/ali/graph lang=data/lang_nosp systems=dnn
# decoded SYSTEM SET: the folder of lattices; that of the development set, which chooses weight and penalty, ends in _dev
decoded() { if [ $2 = dev ]; then echo $1/decode$3_dev; else echo $1/decode$3; fi; }

format_lms() {
  utils/format_lm.sh $1 data/local/lm_small.arpa.gz data/local/dict/lexicon.txt $1_small
  utils/build_const_arpa_lm.sh data/local/lm_big.arpa.gz $1 $1_big
}

if want 0 "corpus, language, language models"; then
  local/prepare_data.sh ${corpus:+--corpus "$corpus"}
  ! $check_counts || pykaldist check-counts local/counts.tsv data
  utils/prepare_lang.sh data/local/dict "<unk>" data/local/lang_nosp data/lang_nosp
  format_lms data/lang_nosp
fi

if want 1 "features: MFCC"; then
  for set in train dev test; do
    steps/make_mfcc.sh --nj "$nj" --cmd "$cmd" data/$set exp/make_mfcc/$set mfcc
    utils/fix_data_dir.sh data/$set  # up to 1 % of the utterances may have unusable audio
    steps/compute_cmvn_stats.sh data/$set exp/make_mfcc/$set mfcc
  done
  utils/subset_data_dir.sh --shortest data/train $short data/train_short  # easiest to align from a flat start
  utils/data/remove_dup_utts.sh 10 data/train_short data/train_short_nodup
fi

if want 2 "alignments: GMMs up to speaker-adaptive training, or imported"; then
  if [ -n "$ali_dir" ]; then
    steps/import_ali.sh --nj "$nj" --cmd "$cmd" $ali_opts "$ali_dir" data/train data/lang_nosp exp/ali
    utils/mkgraph.sh data/lang_nosp_small exp/ali exp/ali/graph
  else
    jobs=(--nj "$nj" --cmd "$cmd") train=(--nj "$nj" --cmd "$cmd" ${seed:+--seed "$seed"} $gmm_opts)
    steps/train_mono.sh "${train[@]}" $mono_opts data/train_short_nodup data/lang_nosp exp/mono
    steps/align_si.sh "${jobs[@]}" data/train data/lang_nosp exp/mono exp/mono_ali
    steps/train_deltas.sh "${train[@]}" "${leaves[0]}" "${gauss[0]}" data/train data/lang_nosp exp/mono_ali exp/tri1
    steps/align_si.sh "${jobs[@]}" data/train data/lang_nosp exp/tri1 exp/tri1_ali
    steps/train_lda_mllt.sh "${train[@]}" "${leaves[1]}" "${gauss[1]}" data/train data/lang_nosp exp/tri1_ali exp/tri2

    # how often each pronunciation was said, and silence around it; the language again with these probabilities
    steps/get_prons.sh --cmd "$cmd" data/train data/lang_nosp exp/tri2
    utils/dict_dir_add_pronprobs.sh --max-normalize true data/local/dict exp/tri2/{pron_counts_nowb,sil_counts_nowb}.txt \
      exp/tri2/pron_bigram_counts_nowb.txt data/local/dict_prons
    utils/prepare_lang.sh data/local/dict_prons "<unk>" data/local/lang data/lang
    format_lms data/lang
    steps/align_si.sh "${jobs[@]}" data/train data/lang exp/tri2 exp/tri2_ali
    steps/train_sat.sh "${train[@]}" "${leaves[2]}" "${gauss[2]}" data/train data/lang exp/tri2_ali exp/tri3
    steps/align_fmllr.sh "${jobs[@]}" data/train data/lang exp/tri3 exp/tri3_ali
    utils/mkgraph.sh data/lang_small exp/tri3 exp/tri3/graph

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
    ${seed:+--seed "$seed" --randomizer-seed "$seed"} ${dbn:+--dbn exp/dbn} ${warmup:+--serial-warmup 0.1} \
    --hid-layers $hid_layers --hid-dim $hid_dim --optimizer ngsgd --minibatch-size $minibatch \
    --schedule exponential --learn-rate 0.008 --final-learn-rate 0.0008 --num-epochs $num_epochs $train_opts exp/dnn/store exp/dnn
fi

if want 6 "decoding with the network, rescoring"; then
  for set in dev test; do
    steps/decode.sh --nj "$nj" --cmd "$cmd" --device "$device" --skip-scoring true "$graph" $data/$set "$(decoded exp/dnn $set)"
    for system in $systems; do
      steps/lmrescore_const_arpa.sh --cmd "$cmd" --skip-scoring true ${lang}_small ${lang}_big data/$set "$(decoded exp/$system $set)" \
        "$(decoded exp/$system $set _rescore)"
    done
  done
fi

if want 7 "scoring"; then
  for system in $systems; do
    for lm in "" _rescore; do  # the development set chooses weight and insertion penalty for the test set
      steps/score_kaldi.sh --cmd "$cmd" data/dev "$graph" exp/$system/decode${lm}_dev
      steps/score_kaldi.sh --cmd "$cmd" --dev-dir exp/$system/decode${lm}_dev data/test "$graph" exp/$system/decode$lm
    done
  done
fi

if want 8 "report"; then
  pykaldist report exp
  say_next
fi
