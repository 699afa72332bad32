#!/usr/bin/env bash
# Switchboard and Fisher (2,000 h of telephone conversations): PLP and pitch, GMMs up to SAT, and the networks of Chen & Huo (2016) and IBM (2019).

corpus_options() {
  cat <<EOF
  --corpus <dir>                  # folder with the packages LDC97S62, LDC2004S13 and others (see local/prepare_data.sh)
  --sets <list>                   # test sets, of eval2000, eval2001, rt03 ("$sets")
  --prepare-opts <options>        # for local/prepare_data.sh, where a package is elsewhere: "--swbd DIR"
  --check-counts true|false       # compare utterances, hours and speakers with those of public recipes; a difference ends the recipe (false)
  --part all|swbd                 # what the network learns from, Switchboard and Fisher or Switchboard alone ($part)
  --dnn <dir>                     # the network's folder ($dnn)
  --nnet-opts <options>           # the network, its optimiser, what workers exchange; local/tables.sh has others ("$nnet_opts")
  --schedule-opts <options>       # the network's schedule ("$schedule_opts")
  --forward-opts <options>        # how a bidirectional network reads utterances in decoding (whole)
  --config <file>                 # other sizes, such as conf/stand_in.conf, for a minute of speech
EOF
}

sets="eval2000 rt03" prepare_opts="" check_counts=false part=all dnn=exp/dnn forward_opts="" default_ngpu=16 default_strategy=bmuf default_rbm=false
nnet_opts="--nnet chen2016-dnn --optimizer sgd --momentum 0.9 --minibatch-size 1024 --average-period 0 --blocks 310"
nnet_opts+=" --block-momentum 0.94 --serial-warmup 0.166"
schedule_opts="--schedule exponential --learn-rate 0.008 --final-learn-rate 0.0008 --num-epochs 5"
heldout=10000 short=100000 mono=10000 first=30000 second=100000 dups=300 cv_percent=2  # utterances; % of them held out
leaves=(3200 5500 11500 11500 18002) gauss=(30000 90000 200000 400000 800000) mono_opts="" gmm_opts="" hid_layers=7 hid_dim=2048 minibatch=1024
. "$(dirname "${BASH_SOURCE[0]}")/utils/shared/recipe.sh" || exit 1  # options, `want`, `with_rbms`
data=data-fmllr graph=exp/tri5/graph_tg train=data-fmllr/train_nodup ali=exp/tri5_ali feat_opts=(--cmvn-opts "--norm-means=false")
[ -z "$ali_dir" ] || data=data graph=exp/ali/graph_tg train=data/train_nodup ali=exp/ali feat_opts=(--delta-opts "--delta-order=2")
store=exp/store systems=$dnn  # that are rescored and scored; the GMM's once
[ -n "$ali_dir" ] || [ "$dnn" != exp/dnn ] || systems="exp/tri5 exp/dnn"
[ "$part" = all ] || store=exp/store_$part

pack() {  # the frame store of $part
  local from=$train
  if [ "$part" = swbd ]; then
    from=${train}_swbd
    utils/subset_data_dir.sh --spk-list data/train_swbd/spk2utt $train $from
  fi
  steps/nnet/pack.sh --cmd "$cmd" --cv-percent $cv_percent "${feat_opts[@]}" $from $ali $store
}

if want 0 "corpora, language, trigram and 4-gram models"; then
  [ -n "$corpus" ] || { echo "run.sh: ERROR: --corpus is needed: the folder with the packages LDC97S62 and others." >&2; exit 1; }
  local/prepare_data.sh --sets "train_swbd train_fisher $sets" $prepare_opts "$corpus"
  utils/prepare_lang.sh data/local/dict "<unk>" data/local/lang data/lang
  utils/combine_data.sh data/train data/train_swbd data/train_fisher
  tail -n +$((heldout + 1)) data/train/text > data/local/lm_text  # the first are kept for measuring perplexity
  head -n $heldout data/train/text > data/local/lm_heldout
  for order in 3 4; do
    utils/train_lm.sh --order $order --oov "<unk>" --heldout-text data/local/lm_heldout data/local/lm_text data/local/dict/lexicon.txt \
      data/local/lm_$order.arpa.gz
  done
  utils/format_lm.sh data/lang data/local/lm_3.arpa.gz data/local/dict/lexicon.txt data/lang_tg
  utils/build_const_arpa_lm.sh data/local/lm_4.arpa.gz data/lang data/lang_fg
fi

if want 1 "features: PLP and pitch; subsets"; then
  for set in train_swbd train_fisher $sets; do
    steps/make_plp_pitch.sh --nj "$nj" --cmd "$cmd" data/$set exp/make_plp_pitch/$set plp_pitch
    utils/fix_data_dir.sh data/$set  # up to 1 % of the utterances may have unusable audio
    steps/compute_cmvn_stats.sh data/$set exp/make_plp_pitch/$set plp_pitch
  done
  utils/combine_data.sh data/train data/train_swbd data/train_fisher
  utils/subset_data_dir.sh --shortest data/train_swbd $short data/train_short  # Switchboard's were segmented with more care
  utils/data/remove_dup_utts.sh 10 data/train_short data/train_short_nodup
  utils/subset_data_dir.sh data/train_short_nodup $mono data/train_mono
  utils/subset_data_dir.sh --speakers data/train_swbd $first data/train_first
  utils/data/remove_dup_utts.sh $((dups * 2 / 3)) data/train_first data/train_first_nodup
  utils/subset_data_dir.sh --speakers data/train_swbd $second data/train_second
  utils/data/remove_dup_utts.sh $((dups * 2 / 3)) data/train_second data/train_second_nodup
  utils/data/remove_dup_utts.sh $dups data/train data/train_nodup
  ! $check_counts || pykaldist check-counts local/counts.tsv data
fi

if want 2 "alignments: GMMs up to speaker-adaptive training, or imported"; then
  if [ -n "$ali_dir" ]; then
    steps/import_ali.sh --nj "$nj" --cmd "$cmd" $ali_opts "$ali_dir" data/train_nodup data/lang exp/ali
    utils/mkgraph.sh data/lang_tg exp/ali $graph
  else
    jobs=(--nj "$nj" --cmd "$cmd") gmm=(--nj "$nj" --cmd "$cmd" ${seed:+--seed "$seed"} $gmm_opts)
    steps/train_mono.sh "${gmm[@]}" $mono_opts data/train_mono data/lang exp/mono
    steps/align_si.sh "${jobs[@]}" data/train_first_nodup data/lang exp/mono exp/mono_ali
    steps/train_deltas.sh "${gmm[@]}" "${leaves[0]}" "${gauss[0]}" data/train_first_nodup data/lang exp/mono_ali exp/tri1
    steps/align_si.sh "${jobs[@]}" data/train_second_nodup data/lang exp/tri1 exp/tri1_ali
    steps/train_deltas.sh "${gmm[@]}" "${leaves[1]}" "${gauss[1]}" data/train_second_nodup data/lang exp/tri1_ali exp/tri2
    steps/align_si.sh "${jobs[@]}" data/train_swbd data/lang exp/tri2 exp/tri2_ali
    steps/train_deltas.sh "${gmm[@]}" "${leaves[2]}" "${gauss[2]}" data/train_swbd data/lang exp/tri2_ali exp/tri3
    steps/align_si.sh "${jobs[@]}" data/train_nodup data/lang exp/tri3 exp/tri3_ali
    steps/train_lda_mllt.sh "${gmm[@]}" "${leaves[3]}" "${gauss[3]}" data/train_nodup data/lang exp/tri3_ali exp/tri4
    steps/align_fmllr.sh "${jobs[@]}" data/train_nodup data/lang exp/tri4 exp/tri4_ali
    steps/train_sat.sh "${gmm[@]}" "${leaves[4]}" "${gauss[4]}" data/train_nodup data/lang exp/tri4_ali exp/tri5
    steps/align_fmllr.sh "${jobs[@]}" data/train_nodup data/lang exp/tri5 exp/tri5_ali
    utils/mkgraph.sh data/lang_tg exp/tri5 $graph

    # data-fmllr: the features that tri5 sees, with the transforms of its alignments and of its decodings
    steps/nnet/make_fmllr_feats.sh "${jobs[@]}" --transform-dir exp/tri5_ali $train data/train_nodup exp/tri5 exp/make_fmllr/train_nodup fmllr
    for set in $sets; do
      steps/decode_fmllr.sh "${jobs[@]}" --skip-scoring true $graph data/$set exp/tri5/decode_$set
      steps/nnet/make_fmllr_feats.sh "${jobs[@]}" --transform-dir exp/tri5/decode_$set data-fmllr/$set data/$set exp/tri5 \
        exp/make_fmllr/$set fmllr
    done
  fi
fi

if want 3 "frame store"; then pack; fi

if want 4 "RBM pretraining" && with_rbms; then  # of networks with sigmoid units; the papers' have none
  steps/nnet/pretrain_dbn.sh --cmd "$cmd" --ngpu "$rbm_ngpu" --device "$device" ${seed:+--seed "$seed"} \
    --hid-layers "$hid_layers" --hid-dim "$hid_dim" $store exp/dbn
fi

if want 5 "network training"; then
  [ -f $store/train/manifest.json ] || pack
  steps/nnet/train.sh --cmd "$cmd" --ngpu "$ngpu" --strategy "$strategy" --device "$device" \
    ${seed:+--seed "$seed" --randomizer-seed "$seed"} ${dbn:+--dbn exp/dbn} $nnet_opts $schedule_opts $train_opts $store "$dnn"
fi

if want 6 "decoding with the network, rescoring with the 4-gram"; then
  for set in $sets; do
    steps/decode.sh --nj "$nj" --cmd "$cmd" --device "$device" --forward-opts "$forward_opts" --skip-scoring true $graph $data/$set \
      "$dnn/decode_$set"
    for system in $systems; do
      steps/lmrescore_const_arpa.sh --cmd "$cmd" --skip-scoring true data/lang_tg data/lang_fg data/$set \
        $system/decode_$set $system/decode_${set}_fg
    done
  done
fi

if want 7 "scoring by NIST's sclite"; then
  for set in $sets; do
    for system in $systems; do
      for lm in "" _fg; do local/score.sh --cmd "$cmd" --nj "$nj" data/$set $graph $system/decode_$set$lm; done
    done
  done
fi

if want 8 "report"; then
  pykaldist report exp
  printf '\nTo try next, in %s:\n  local/tables.sh --table chen3   # tables of Chen & Huo (2016) and of IBM (2019)\n' "$PWD"
fi
