#!/usr/bin/env bash
# What networks with i-vectors need: alignments of the training set at three speeds, high-resolution MFCCs, i-vectors. After run.sh, stages 0 to 2.

usage() {
  cat <<EOF
Usage: local/nnet3/run_ivector_common.sh [options]
 e.g.: local/nnet3/run_ivector_common.sh --nj 4
Makes data/train_sp_hires and data/test_hires, the alignment exp/tri3_ali_train_sp, the extractor exp/nnet3/extractor, and the i-vectors
exp/nnet3/ivectors_train_sp_hires and exp/nnet3/ivectors_test_hires.
Options:
  --stage <n>          # stage to begin with: 1 low-resolution features at three speeds, 2 their alignment, 3 high-resolution features,
                       # 4 UBM, 5 extractor, 6 i-vectors ($stage)
  --gmm <name>         # system that aligns, of exp/ ($gmm)
  --train-set <name>, --test-sets <names>, --nnet3-affix <affix>   # of data/ ($train_set, $test_sets), behind exp/nnet3 (none)
  --num-gauss <n>, --ivector-dim <n>   # Gaussians of the UBM, dimension of the i-vectors ($num_gauss, $ivector_dim)
  --online-cmvn-iextractor true|false  # the extractor sees normalised features (false)
  --nj <n>             # jobs ($nj)
  --cmd <command>      # how to run them (cmd.sh's)
EOF
}

stage=0 nj=2 gmm=tri3 train_set=train test_sets=test nnet3_affix="" num_gauss=64 ivector_dim=50 online_cmvn_iextractor=false
. ./cmd.sh
. ./path.sh
. parse_options.sh || exit 1
if [ $# != 0 ]; then usage >&2; exit 1; fi
exp=exp/nnet3$nnet3_affix hires=data/${train_set}_sp_hires
for f in data/$train_set/wav.scp exp/$gmm/final.mdl; do
  [ -f "$f" ] || { echo "run_ivector_common.sh: ERROR: $f does not exist; run ./run.sh --stop-stage 2 first." >&2; exit 1; }
done
set -e

if [ "$stage" -le 1 ]; then
  utils/data/perturb_data_dir_speed_3way.sh "data/$train_set" "data/${train_set}_sp"
  steps/make_mfcc.sh --nj "$nj" --cmd "$cmd" "data/${train_set}_sp"
  utils/fix_data_dir.sh "data/${train_set}_sp"
  steps/compute_cmvn_stats.sh "data/${train_set}_sp"
fi

if [ "$stage" -le 2 ]; then
  steps/align_fmllr.sh --nj "$nj" --cmd "$cmd" "data/${train_set}_sp" data/lang "exp/$gmm" "exp/${gmm}_ali_${train_set}_sp"
fi

if [ "$stage" -le 3 ]; then
  for set in "${train_set}_sp" $test_sets; do
    utils/copy_data_dir.sh "data/$set" "data/${set}_hires"
    # other volumes in training: networks that see no CMVN learn not to mind
    [ "$set" != "${train_set}_sp" ] || utils/data/perturb_data_dir_volume.sh "$hires"
    steps/make_mfcc.sh --nj "$nj" --cmd "$cmd" --mfcc-config conf/mfcc_hires.conf "data/${set}_hires"
    utils/fix_data_dir.sh "data/${set}_hires"
    steps/compute_cmvn_stats.sh "data/${set}_hires"
  done
fi

if [ "$stage" -le 4 ]; then
  steps/online/nnet2/get_pca_transform.sh --cmd "$cmd" --splice-opts "--left-context=3 --right-context=3" --subsample 2 \
    "$hires" "$exp/pca_transform"
  steps/online/nnet2/train_diag_ubm.sh --nj "$nj" --cmd "$cmd" "$hires" "$num_gauss" "$exp/pca_transform" "$exp/diag_ubm"
fi

if [ "$stage" -le 5 ]; then
  steps/online/nnet2/train_ivector_extractor.sh --nj "$nj" --cmd "$cmd" --ivector-dim "$ivector_dim" \
    --online-cmvn-iextractor "$online_cmvn_iextractor" "$hires" "$exp/diag_ubm" "$exp/extractor"
fi

if [ "$stage" -le 6 ]; then
  # in training a speaker has two utterances, so that i-vectors differ more and often begin from nothing
  utils/data/modify_speaker_info.sh --utts-per-spk-max 2 "$hires" "$exp/ivectors_${train_set}_sp_hires/${train_set}_sp_hires_max2"
  steps/online/nnet2/extract_ivectors_online.sh --nj "$nj" --cmd "$cmd" "$exp/ivectors_${train_set}_sp_hires/${train_set}_sp_hires_max2" \
    "$exp/extractor" "$exp/ivectors_${train_set}_sp_hires"
  for set in $test_sets; do
    steps/online/nnet2/extract_ivectors_online.sh --nj "$nj" --cmd "$cmd" "data/${set}_hires" "$exp/extractor" "$exp/ivectors_${set}_hires"
  done
fi
