#!/usr/bin/env bash
# Switchboard (300 h of telephone conversations): PLP and pitch, LDA+MLLT, SAT, fMLLR, and the DNN of Su, Chen & Xu (2015) by many workers.

corpus_options() {
  cat <<EOF
  --corpus <dir>                  # folder with the packages LDC97S62, LDC2002S09, LDC2002T43 (see local/prepare_data.sh)
  --sets <list>                   # test sets, of eval2000, eval2001, rt03 ("$sets")
  --prepare-opts <options>        # for local/prepare_data.sh, where a package is elsewhere: "--swbd DIR"
  --check-counts true|false       # compare utterances, hours and speakers with those of public recipes; a difference ends the recipe (false)
  --dnn <dir>                     # the network's folder ($dnn)
  --schedule-opts <options>       # the network's schedule ("$schedule_opts")
  --config <file>                 # other sizes, such as conf/stand_in.conf, for a minute of speech
EOF
}

sets=eval2000 prepare_opts="" check_counts=false dnn=exp/dnn default_ngpu=16
schedule_opts="--schedule exponential --learn-rate 0.008 --final-learn-rate 0.00008 --num-epochs 15"
heldout=10000 dev=4000 short=100000 mono=30000 first=100000 dups=300       # utterances
leaves=(3200 4000 6000 11500) gauss=(30000 70000 140000 200000) mono_opts="" gmm_opts="" hid_layers=6 hid_dim=2048 minibatch=1024
. "$(dirname "${BASH_SOURCE[0]}")/utils/shared/recipe.sh" || exit 1  # options, `want`, `with_rbms`
data=data-fmllr graph=exp/tri4/graph
[ -z "$ali_dir" ] || data=data graph=exp/ali/graph

if want 0 "corpus, language, language model"; then
  [ -n "$corpus" ] || { echo "run.sh: ERROR: --corpus is needed: the folder with the packages LDC97S62 and others." >&2; exit 1; }
  local/prepare_data.sh --sets "train $sets" $prepare_opts "$corpus"
  utils/prepare_lang.sh data/local/dict "<unk>" data/local/lang data/lang
  tail -n +$((heldout + 1)) data/train/text > data/local/lm_text  # the first are kept for measuring perplexity
  utils/train_lm.sh --order 3 --oov "<unk>" data/local/lm_text data/local/dict/lexicon.txt data/local/lm.arpa.gz
  utils/format_lm.sh data/lang data/local/lm.arpa.gz data/local/dict/lexicon.txt data/lang_test
fi

if want 1 "features: PLP and pitch; subsets"; then
  for set in train $sets; do
    steps/make_plp_pitch.sh --nj "$nj" --cmd "$cmd" data/$set exp/make_plp_pitch/$set plp_pitch
    utils/fix_data_dir.sh data/$set  # up to 1 % of the utterances may have unusable audio
    steps/compute_cmvn_stats.sh data/$set exp/make_plp_pitch/$set plp_pitch
  done
  utils/subset_data_dir.sh --first data/train "$dev" data/train_dev
  utils/subset_data_dir.sh --last data/train $(($(wc -l < data/train/text) - dev)) data/train_nodev
  utils/subset_data_dir.sh --shortest data/train_nodev "$short" data/train_short
  utils/subset_data_dir.sh data/train_short "$mono" data/train_mono
  utils/subset_data_dir.sh --first data/train_nodev "$first" data/train_first
  utils/data/remove_dup_utts.sh $((dups * 2 / 3)) data/train_first data/train_first_nodup
  utils/data/remove_dup_utts.sh "$dups" data/train_nodev data/train_nodup
  ! $check_counts || pykaldist check-counts local/counts.tsv data
fi

if want 2 "alignments: GMMs up to speaker-adaptive training, or imported"; then
  if [ -n "$ali_dir" ]; then
    steps/import_ali.sh --nj "$nj" --cmd "$cmd" $ali_opts "$ali_dir" data/train_nodup data/lang exp/ali
    utils/mkgraph.sh data/lang_test exp/ali exp/ali/graph
  else
    train=(--nj "$nj" --cmd "$cmd" ${seed:+--seed "$seed"} $gmm_opts)
    steps/train_mono.sh "${train[@]}" $mono_opts data/train_mono data/lang exp/mono
    steps/align_si.sh --nj "$nj" --cmd "$cmd" data/train_first_nodup data/lang exp/mono exp/mono_ali
    steps/train_deltas.sh "${train[@]}" "${leaves[0]}" "${gauss[0]}" data/train_first_nodup data/lang exp/mono_ali exp/tri1
    steps/align_si.sh --nj "$nj" --cmd "$cmd" data/train_first_nodup data/lang exp/tri1 exp/tri1_ali
    steps/train_deltas.sh "${train[@]}" "${leaves[1]}" "${gauss[1]}" data/train_first_nodup data/lang exp/tri1_ali exp/tri2
    steps/align_si.sh --nj "$nj" --cmd "$cmd" data/train_nodup data/lang exp/tri2 exp/tri2_ali
    steps/train_lda_mllt.sh "${train[@]}" "${leaves[2]}" "${gauss[2]}" data/train_nodup data/lang exp/tri2_ali exp/tri3
    steps/align_fmllr.sh --nj "$nj" --cmd "$cmd" data/train_nodup data/lang exp/tri3 exp/tri3_ali
    steps/train_sat.sh "${train[@]}" "${leaves[3]}" "${gauss[3]}" data/train_nodup data/lang exp/tri3_ali exp/tri4
    steps/align_fmllr.sh --nj "$nj" --cmd "$cmd" data/train_nodup data/lang exp/tri4 exp/tri4_ali
    utils/mkgraph.sh data/lang_test exp/tri4 exp/tri4/graph

    # data-fmllr: the features that tri4 sees, with the transforms of its alignments and of its decodings
    steps/nnet/make_fmllr_feats.sh --nj "$nj" --cmd "$cmd" --transform-dir exp/tri4_ali \
      data-fmllr/train_nodup data/train_nodup exp/tri4 exp/make_fmllr/train_nodup fmllr
    for set in $sets; do
      steps/decode_fmllr.sh --nj "$nj" --cmd "$cmd" --skip-scoring true exp/tri4/graph data/$set exp/tri4/decode_$set
      steps/nnet/make_fmllr_feats.sh --nj "$nj" --cmd "$cmd" --transform-dir exp/tri4/decode_$set \
        data-fmllr/$set data/$set exp/tri4 exp/make_fmllr/$set fmllr
    done
  fi
fi

if want 3 "frame store"; then
  if [ -n "$ali_dir" ]; then
    steps/nnet/pack.sh --cmd "$cmd" --delta-opts "--delta-order=2" data/train_nodup exp/ali exp/store
  else
    steps/nnet/pack.sh --cmd "$cmd" --cmvn-opts "--norm-means=false" data-fmllr/train_nodup exp/tri4_ali exp/store
  fi
fi

if want 4 "RBM pretraining" && with_rbms; then
  steps/nnet/pretrain_dbn.sh --cmd "$cmd" --ngpu "$rbm_ngpu" --strategy "$strategy" --device "$device" ${seed:+--seed "$seed"} \
    --hid-layers "$hid_layers" --hid-dim "$hid_dim" exp/store exp/dbn
fi

if want 5 "network training"; then
  steps/nnet/train.sh --cmd "$cmd" --ngpu "$ngpu" --strategy "$strategy" --device "$device" \
    ${seed:+--seed "$seed" --randomizer-seed "$seed"} ${dbn:+--dbn exp/dbn} --hid-layers "$hid_layers" --hid-dim "$hid_dim" \
    --optimizer ngsgd --minibatch-size "$minibatch" $schedule_opts $train_opts exp/store "$dnn"
fi

if want 6 "decoding with the network"; then
  for set in $sets; do
    steps/decode.sh --nj "$nj" --cmd "$cmd" --device "$device" --skip-scoring true "$graph" $data/$set "$dnn/decode_$set"
  done
fi

if want 7 "scoring by NIST's sclite"; then
  for set in $sets; do
    [ -n "$ali_dir" ] || [ "$dnn" != exp/dnn ] || local/score.sh --cmd "$cmd" --nj "$nj" data/$set "$graph" exp/tri4/decode_$set
    local/score.sh --cmd "$cmd" --nj "$nj" data/$set "$graph" "$dnn/decode_$set"
  done
fi

if want 8 "report"; then
  pykaldist report exp
  printf '\nTo try next, in %s:\n  local/tables.sh --table 1   # the tables of Su, Chen & Xu (2015), 1 to 6\n' "$PWD"
fi
