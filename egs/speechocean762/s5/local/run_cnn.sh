#!/usr/bin/env bash
# A CNN on filterbanks with deltas, on the alignments of the recipe's DNN. After run.sh, stages 0 to 3.
exp=exp/cnn
. "$(dirname "${BASH_SOURCE[0]}")/../utils/shared/network.sh" || exit 1  # options; $ali, $data and $graph of the DNN

if want 0; then
  for set in train test; do
    utils/copy_data_dir.sh data/$set data-fbank/$set
    steps/make_fbank.sh --nj "$nj" --cmd "$cmd" data-fbank/$set exp/make_fbank/$set fbank
    utils/fix_data_dir.sh data-fbank/$set
    steps/compute_cmvn_stats.sh data-fbank/$set exp/make_fbank/$set fbank
  done
fi

if want 1; then
  steps/nnet/pack.sh --cmd "$cmd" --delta-opts "--delta-order=2" data-fbank/train "$ali" "$exp/store"
fi

if want 2; then
  steps/nnet/train.sh --cmd "$cmd" --ngpu "$ngpu" --strategy "$strategy" --device "$device" --seed "$seed" --randomizer-seed "$seed" \
    --nnet chan2015-cnn-small --batch-norm true \
    --schedule exponential --learn-rate 0.002 --final-learn-rate 0.0002 --num-epochs 6 $train_opts "$exp/store" "$exp"
fi

if want 3; then decode_and_score data-fbank/test; fi
