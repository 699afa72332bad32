#!/usr/bin/env bash
# Mini LibriSpeech (five hours of read English books, 16 kHz), from the corpus to word error rates with small and large language models.

corpus_options() {
  cat <<EOF
  --corpus <dir>                  # the folder with LibriSpeech/ (OpenSLR 31) and, there or in lm/, the files of OpenSLR 11; else fetched
  --lms <models>                  # what the lattices of tgsmall are rescored with, of tgmed, tglarge, fglarge ("tgmed tglarge")
  --check-counts true|false       # compare the number of words with that of public recipes; a difference ends the recipe (false)
EOF
  augment_options
}
. "$(dirname "${BASH_SOURCE[0]}")/utils/shared/augment.sh"  # its options, `augment`
lms="tgmed tglarge" speed_perturb=true check_counts=false

. "$(dirname "${BASH_SOURCE[0]}")/utils/shared/recipe.sh" || exit 1  # options, `want`, `with_rbms`, `say_next`
. local/rescore.sh  # rescore, score_all
train=train_clean_5 test=dev_clean_2
# The features that the network sees, its decoding graph, and the GMMs that are scored beside it. Imported alignments come without GMMs.
data=data-fmllr graph=exp/tri3b/graph_tgsmall systems="tri3b dnn"
[ -z "$ali_dir" ] || data=data graph=exp/ali/graph_tgsmall systems=dnn

if want 0 "corpus, language, language models"; then
  local/prepare_data.sh ${corpus:+--corpus "$corpus"} --lms "tgsmall $lms"
  ! $check_counts || pykaldist check-counts local/counts.tsv data
  utils/prepare_lang.sh data/local/dict "<UNK>" data/local/lang_nosp data/lang_nosp
  format_lms data/lang_nosp data/local/dict/lexicon.txt
fi

if want 1 "features: MFCC"; then
  for set in $train $test; do
    steps/make_mfcc.sh --nj "$nj" --cmd "$cmd" data/$set exp/make_mfcc/$set mfcc
    utils/fix_data_dir.sh data/$set  # up to 1 % of the utterances may have unusable audio
    steps/compute_cmvn_stats.sh data/$set exp/make_mfcc/$set mfcc
  done
  utils/subset_data_dir.sh --shortest data/$train 500 data/train_500short  # easiest to align from a flat start
fi

if want 2 "alignments: GMMs up to speaker-adaptive training, or imported"; then
  if [ -n "$ali_dir" ]; then
    steps/import_ali.sh --nj "$nj" --cmd "$cmd" $ali_opts "$ali_dir" data/$train data/lang_nosp exp/ali
    utils/mkgraph.sh data/lang_nosp_tgsmall exp/ali "$graph"
  else
    gmm=(--nj "$nj" --cmd "$cmd" ${seed:+--seed "$seed"})
    steps/train_mono.sh "${gmm[@]}" --boost-silence 1.25 data/train_500short data/lang_nosp exp/mono
    steps/align_si.sh --nj "$nj" --cmd "$cmd" --boost-silence 1.25 data/$train data/lang_nosp exp/mono exp/mono_ali
    steps/train_deltas.sh "${gmm[@]}" --boost-silence 1.25 2000 10000 data/$train data/lang_nosp exp/mono_ali exp/tri1
    steps/align_si.sh --nj "$nj" --cmd "$cmd" data/$train data/lang_nosp exp/tri1 exp/tri1_ali
    steps/train_lda_mllt.sh "${gmm[@]}" --splice-opts "--left-context=3 --right-context=3" 2500 15000 \
      data/$train data/lang_nosp exp/tri1_ali exp/tri2b
    steps/align_si.sh --nj "$nj" --cmd "$cmd" data/$train data/lang_nosp exp/tri2b exp/tri2b_ali
    steps/train_sat.sh "${gmm[@]}" 2500 15000 data/$train data/lang_nosp exp/tri2b_ali exp/tri3b

    # how often each pronunciation was said, and silence around it; the language again with these probabilities
    steps/get_prons.sh --cmd "$cmd" data/$train data/lang_nosp exp/tri3b
    utils/dict_dir_add_pronprobs.sh --max-normalize true data/local/dict exp/tri3b/{pron_counts_nowb,sil_counts_nowb}.txt \
      exp/tri3b/pron_bigram_counts_nowb.txt data/local/dict_prons
    utils/prepare_lang.sh data/local/dict_prons "<UNK>" data/local/lang data/lang
    format_lms data/lang data/local/dict/lexicon.txt
    utils/mkgraph.sh data/lang_tgsmall exp/tri3b "$graph"
    steps/decode_fmllr.sh --nj "$nj" --cmd "$cmd" --skip-scoring true "$graph" data/$test exp/tri3b/decode_tgsmall_$test

    augment $train  # $train has the copies beside it then
    steps/align_fmllr.sh --nj "$nj" --cmd "$cmd" data/$train data/lang exp/tri3b exp/tri3b_ali

    # data-fmllr: the features that tri3b sees, with the transforms of its alignments and of its decoding
    steps/nnet/make_fmllr_feats.sh --nj "$nj" --cmd "$cmd" --transform-dir exp/tri3b_ali \
      data-fmllr/train data/$train exp/tri3b exp/make_fmllr/train fmllr
    steps/nnet/make_fmllr_feats.sh --nj "$nj" --cmd "$cmd" --transform-dir exp/tri3b/decode_tgsmall_$test \
      data-fmllr/$test data/$test exp/tri3b exp/make_fmllr/$test fmllr
  fi
fi

if want 3 "frame store"; then
  if [ -n "$ali_dir" ]; then
    steps/nnet/pack.sh --cmd "$cmd" --delta-opts "--delta-order=2" data/$train exp/ali exp/dnn/store
  else
    steps/nnet/pack.sh --cmd "$cmd" --cmvn-opts "--norm-means=false" data-fmllr/train exp/tri3b_ali exp/dnn/store
  fi
fi

if want 4 "RBM pretraining" && with_rbms; then
  steps/nnet/pretrain_dbn.sh --cmd "$cmd" --ngpu "$rbm_ngpu" --strategy "$strategy" --device "$device" ${seed:+--seed "$seed"} \
    --hid-layers 6 --hid-dim 1024 exp/dnn/store exp/dbn
fi

if want 5 "network training"; then
  steps/nnet/train.sh --cmd "$cmd" --ngpu "$ngpu" --strategy "$strategy" --device "$device" \
    ${seed:+--seed "$seed" --randomizer-seed "$seed"} ${dbn:+--dbn exp/dbn} ${warmup:+--serial-warmup 0.25} \
    --hid-layers 6 --hid-dim 1024 --optimizer ngsgd --schedule exponential --learn-rate 0.008 --final-learn-rate 0.0008 --num-epochs 8 \
    $train_opts exp/dnn/store exp/dnn
fi

if want 6 "decoding with the network, rescoring"; then
  steps/decode.sh --nj "$nj" --cmd "$cmd" --device "$device" --skip-scoring true "$graph" $data/$test exp/dnn/decode_tgsmall_$test
  for system in $systems; do rescore exp/$system $test; done
fi

if want 7 "scoring"; then
  for system in $systems; do score_all exp/$system $test; done
fi

if want 8 "report"; then
  pykaldist report exp
  say_next data/$test
fi
