#!/usr/bin/env bash
# Makes a directory for online decoding: an nnet3 network, its features' config and its i-vector extractor, with Kaldi's options.

usage() {
  cat <<EOF
Usage: steps/online/nnet3/prepare_online_decoding.sh [options] <lang-dir> [<ivector-extractor-dir>] <nnet-dir> <output-dir>
 e.g.: steps/online/nnet3/prepare_online_decoding.sh --mfcc-config conf/mfcc_hires.conf data/lang exp/nnet3/extractor exp/chain/tdnn \\
         exp/chain/tdnn_online
Writes <output-dir>/{final.mdl,tree,conf/online.conf,...}, which steps/online/nnet3/decode.sh decodes with. The network takes features
as they are, without CMVN, or with online CMVN.
Options:
  --feature-type mfcc|plp|fbank   # of the network ($feature_type)
  --mfcc-config ($mfcc_config), --plp-config ($plp_config), --fbank-config ($fbank_config)   # the features' options
  --num-gselect ($num_gselect), --min-post ($min_post), --posterior-scale ($posterior_scale), --max-count ($max_count), --ivector-period ($ivector_period)   # of i-vectors
  --iter <iteration>              # <iteration>.mdl in place of final.mdl
  --online-cmvn-config <file>     # must be as the extractor's online_cmvn.conf ($online_cmvn_config)
  --stage, --add-pitch, --online-pitch-config   # taken; pitch is refused
EOF
}

feature_type=mfcc mfcc_config=conf/mfcc.conf plp_config=conf/plp.conf fbank_config=conf/fbank.conf add_pitch=false online_pitch_config=""
online_cmvn_config=conf/online_cmvn.conf num_gselect=5 posterior_scale=0.1 min_post=0.025 max_count=100.0 ivector_period=10 iter=final stage=0
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 3 ] && [ $# != 4 ]; then usage >&2; exit 1; fi
lang=$1 extractor="" model_dir=${*: -2:1} dir=${*: -1}
[ $# = 3 ] || extractor=$2
if [ "$add_pitch" = true ]; then
  echo "prepare_online_decoding.sh: ERROR: --add-pitch true: pitch is not made of audio as it comes here; train without." >&2
  exit 1
fi
if [ -n "$extractor" ] && ! cmp -s "$online_cmvn_config" "$extractor/online_cmvn.conf"; then
  echo "prepare_online_decoding.sh: ERROR: $online_cmvn_config differs from $extractor/online_cmvn.conf, or is missing; name the extractor's" \
    "with --online-cmvn-config." >&2
  exit 1
fi
config=${feature_type}_config
pykaldist prepare-online-decoding ${extractor:+--extractor "$extractor"} --feature-type "$feature_type" --feats-config "${!config}" \
  --iter "$iter" --online-cmvn-config "$online_cmvn_config" --num-gselect "$num_gselect" --min-post "$min_post" --posterior-scale "$posterior_scale" --max-count "$max_count" \
  --ivector-period "$ivector_period" "$lang" "$model_dir" "$dir" || exit 1
echo "prepare_online_decoding.sh: $dir/conf/online.conf"
