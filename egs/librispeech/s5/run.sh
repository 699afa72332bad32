#!/usr/bin/env bash
# LibriSpeech (100, 460 or 960 hours of read English books, 16 kHz), from the corpus to WERs with small and large language models.

corpus_options() {
  cat <<EOF
  --corpus <dir>                  # the folder with LibriSpeech/ (OpenSLR 12) and, there or in lm/, the files of OpenSLR 11; else fetched
  --hours 100|460|960             # of training: train-clean-100, with train-clean-360, with train-other-500 (960)
  --tests <data dirs>             # what is decoded ("dev_clean test_clean dev_other test_other")
  --lms <models>                  # what the lattices of tgsmall are rescored with, of tgmed, tglarge, fglarge ("tgmed tglarge fglarge")
  --check-counts true|false       # compare utterances, hours and readers with those that are published; a difference ends the recipe (false)
EOF
  augment_options
}
. "$(dirname "${BASH_SOURCE[0]}")/utils/shared/augment.sh"  # its options, `augment`
hours=960 tests="dev_clean test_clean dev_other test_other" lms="tgmed tglarge fglarge" check_counts=false
default_ngpu=4

. "$(dirname "${BASH_SOURCE[0]}")/utils/shared/recipe.sh" || exit 1  # options, `want`, `with_rbms`, `say_next`
. local/rescore.sh  # rescore, score_all
case $hours in
  100) train=train_clean_100 sat=tri4b parts="train-clean-100" ;;
  460) train=train_460 sat=tri5b parts="train-clean-100 train-clean-360" ;;
  960) train=train_960 sat=tri6b parts="train-clean-100 train-clean-360 train-other-500" ;;
  *) echo "run.sh: ERROR: --hours is 100, 460 or 960, found $hours." >&2; exit 1 ;;
esac
trains=${parts//-/_}
# The features that the network sees, its decoding graph, and the GMMs that are scored beside it. Imported alignments come without GMMs.
data=data-fmllr graph=exp/$sat/graph_tgsmall systems="$sat dnn"
[ -z "$ali_dir" ] || data=data graph=exp/ali/graph_tgsmall systems=dnn

make_mfcc() {
  for set in "$@"; do
    steps/make_mfcc.sh --nj "$nj" --cmd "$cmd" data/$set exp/make_mfcc/$set mfcc
    utils/fix_data_dir.sh data/$set  # up to 1 % of the utterances may have unusable audio
    steps/compute_cmvn_stats.sh data/$set exp/make_mfcc/$set mfcc
  done
}

if want 0 "corpus, language, language models"; then
  named=${tests//_/-}
  local/prepare_data.sh ${corpus:+--corpus "$corpus"} --parts "$parts $named" --lms "tgsmall $lms"
  ! $check_counts || pykaldist check-counts local/counts.tsv data
  utils/prepare_lang.sh data/local/dict "<UNK>" data/local/lang_nosp data/lang_nosp
  format_lms data/lang_nosp data/local/dict/lexicon.txt
fi

if want 1 "features: MFCC"; then
  make_mfcc $trains $tests
  [ "$hours" = 100 ] || utils/combine_data.sh data/$train ${trains//train_/data/train_}
  utils/subset_data_dir.sh --shortest data/train_clean_100 2000 data/train_2kshort  # easiest to align from a flat start
  utils/subset_data_dir.sh data/train_clean_100 5000 data/train_5k
  utils/subset_data_dir.sh data/train_clean_100 10000 data/train_10k
fi

if want 2 "alignments: GMMs up to speaker-adaptive training, or imported"; then
  if [ -n "$ali_dir" ]; then
    steps/import_ali.sh --nj "$nj" --cmd "$cmd" $ali_opts "$ali_dir" data/$train data/lang_nosp exp/ali
    utils/mkgraph.sh data/lang_nosp_tgsmall exp/ali "$graph"
  else
    jobs=(--nj "$nj" --cmd "$cmd") gmm=(--nj "$nj" --cmd "$cmd" ${seed:+--seed "$seed"}) lang=data/lang_nosp
    steps/train_mono.sh "${gmm[@]}" --boost-silence 1.25 data/train_2kshort $lang exp/mono
    steps/align_si.sh "${jobs[@]}" --boost-silence 1.25 data/train_5k $lang exp/mono exp/mono_ali
    steps/train_deltas.sh "${gmm[@]}" --boost-silence 1.25 2000 10000 data/train_5k $lang exp/mono_ali exp/tri1
    steps/align_si.sh "${jobs[@]}" data/train_10k $lang exp/tri1 exp/tri1_ali
    steps/train_lda_mllt.sh "${gmm[@]}" --splice-opts "--left-context=3 --right-context=3" 2500 15000 \
      data/train_10k $lang exp/tri1_ali exp/tri2b
    steps/align_si.sh "${jobs[@]}" data/train_10k $lang exp/tri2b exp/tri2b_ali
    steps/train_sat.sh "${gmm[@]}" 2500 15000 data/train_10k $lang exp/tri2b_ali exp/tri3b
    steps/align_fmllr.sh "${jobs[@]}" data/train_clean_100 $lang exp/tri3b exp/tri3b_ali
    steps/train_sat.sh "${gmm[@]}" 4200 40000 data/train_clean_100 $lang exp/tri3b_ali exp/tri4b

    # how often each pronunciation was said, and silence around it; the language again with these probabilities
    steps/get_prons.sh --cmd "$cmd" data/train_clean_100 $lang exp/tri4b
    utils/dict_dir_add_pronprobs.sh --max-normalize true data/local/dict exp/tri4b/{pron_counts_nowb,sil_counts_nowb}.txt \
      exp/tri4b/pron_bigram_counts_nowb.txt data/local/dict_prons
    lang=data/lang
    utils/prepare_lang.sh data/local/dict_prons "<UNK>" data/local/lang $lang
    format_lms $lang data/local/dict/lexicon.txt
    if [ "$hours" != 100 ]; then
      steps/align_fmllr.sh "${jobs[@]}" data/$train $lang exp/tri4b exp/tri4b_ali
      leaves=5000 gauss=100000
      [ "$hours" = 460 ] || leaves=7000 gauss=150000
      steps/train_quick.sh --cmd "$cmd" $leaves $gauss data/$train $lang exp/tri4b_ali exp/$sat
    fi
    utils/mkgraph.sh ${lang}_tgsmall exp/$sat "$graph"
    for test in $tests; do
      steps/decode_fmllr.sh "${jobs[@]}" --skip-scoring true "$graph" data/$test exp/$sat/decode_tgsmall_$test
    done

    augment $train  # $train has the copies beside it then
    steps/align_fmllr.sh "${jobs[@]}" data/$train $lang exp/$sat exp/${sat}_ali

    # data-fmllr: the features that the SAT system sees, with the transforms of its alignments and of its decoding
    steps/nnet/make_fmllr_feats.sh "${jobs[@]}" --transform-dir exp/${sat}_ali \
      data-fmllr/train data/$train exp/$sat exp/make_fmllr/train fmllr
    for test in $tests; do
      steps/nnet/make_fmllr_feats.sh "${jobs[@]}" --transform-dir exp/$sat/decode_tgsmall_$test \
        data-fmllr/$test data/$test exp/$sat exp/make_fmllr/$test fmllr
    done
  fi
fi

if want 3 "frame store"; then
  if [ -n "$ali_dir" ]; then
    steps/nnet/pack.sh --cmd "$cmd" --delta-opts "--delta-order=2" data/$train exp/ali exp/dnn/store
  else
    steps/nnet/pack.sh --cmd "$cmd" --cmvn-opts "--norm-means=false" data-fmllr/train exp/${sat}_ali exp/dnn/store
  fi
fi

if want 4 "RBM pretraining" && with_rbms; then
  steps/nnet/pretrain_dbn.sh --cmd "$cmd" --ngpu "$rbm_ngpu" --strategy "$strategy" --device "$device" ${seed:+--seed "$seed"} \
    --hid-layers 6 --hid-dim 2048 exp/dnn/store exp/dbn
fi

if want 5 "network training"; then
  steps/nnet/train.sh --cmd "$cmd" --ngpu "$ngpu" --strategy "$strategy" --device "$device" \
    ${seed:+--seed "$seed" --randomizer-seed "$seed"} ${dbn:+--dbn exp/dbn} ${warmup:+--serial-warmup 0.1} \
    --hid-layers 6 --hid-dim 2048 --optimizer ngsgd --minibatch-size 1024 --schedule newbob --learn-rate 0.008 \
    $train_opts exp/dnn/store exp/dnn
fi

if want 6 "decoding with the network, rescoring"; then
  for test in $tests; do
    steps/decode.sh --nj "$nj" --cmd "$cmd" --device "$device" --skip-scoring true "$graph" $data/$test exp/dnn/decode_tgsmall_$test
    for system in $systems; do rescore exp/$system $test; done
  done
fi

if want 7 "scoring"; then
  for test in $tests; do
    for system in $systems; do score_all exp/$system $test; done
  done
fi

if want 8 "report"; then
  pykaldist report exp
  say_next "data/${tests%% *}"
fi
