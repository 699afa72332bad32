# Sourced by the recipes of LibriSpeech: their options on augmentation, and what these make of the training data.
#   . augment.sh
#   corpus_options() { ...; augment_options; }
#   augment <set>     # prints nothing; $train becomes the set with its copies, with features, or stays <set>
speed_perturb=false volume_perturb=false rirs="" noises=""

augment_options() {
  cat <<EOF
  --speed-perturb true|false      # whether the network learns from speech at 0.9, 1 and 1.1 times its speed ($speed_perturb)
  --volume-perturb true|false     # whether it learns from speech at other volumes ($volume_perturb)
  --rirs <dir>, --noises <dir>    # whether it learns from copies too, in other rooms (OpenSLR 28) and with noise (OpenSLR 17), at 16 kHz
EOF
}

augment() {
  local copies=() set
  train=$1
  case $rirs in "" | /*) ;; *) rirs=$OLDPWD/$rirs ;; esac  # as the caller's folder has it
  case $noises in "" | /*) ;; *) noises=$OLDPWD/$noises ;; esac
  if $speed_perturb; then
    utils/data/perturb_data_dir_speed_3way.sh data/$1 data/$1_sp
    train=$1_sp
  fi
  if [ -n "$rirs$noises" ]; then
    utils/data/augment_data_dir.sh --rirs "$rirs" --noises "$noises" --nj "$nj" data/$1 data/$1_aug augmented
    copies=($1_aug)
  fi
  if $volume_perturb; then
    [ "$train" != "$1" ] || { utils/copy_data_dir.sh data/$1 data/$1_vol; train=$1_vol; }
    for set in $train "${copies[@]}"; do utils/data/perturb_data_dir_volume.sh data/$set; done
  fi
  [ "$train ${copies[*]}" != "$1 " ] || return 0
  for set in $train "${copies[@]}"; do
    [ -f data/$set/feats.scp ] || steps/make_mfcc.sh --nj "$nj" --cmd "$cmd" data/$set exp/make_mfcc/$set mfcc
    utils/fix_data_dir.sh data/$set
    steps/compute_cmvn_stats.sh data/$set exp/make_mfcc/$set mfcc
  done
  [ ${#copies[@]} = 0 ] || { utils/combine_data.sh data/${train}_all data/$train "${copies[@]/#/data/}"; train=${train}_all; }
}
