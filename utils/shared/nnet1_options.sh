# Sourced by steps/nnet/{decode,align,make_bn_feats}.sh after parse_options.sh: Kaldi's --use-gpu becomes --device, and what is not done here
# ends in a sentence.
refuse() {
  echo "${0##*/}: ERROR: $1 has no meaning here: $2." >&2
  exit 1
}

case $use_gpu in
  no) ;;
  yes) device=cuda ;;
  opt*) device=auto ;;
  *) refuse "--use-gpu $use_gpu" "it is yes, no or optional" ;;
esac
[ -z "$ivector" ] || refuse --ivector "i-vectors are not appended to features; train without them"
for __word in $nnet_forward_opts; do
  case $__word in
    --no-softmax=true | --prior-scale=1 | --prior-scale=1.0 | --use-gpu=* | --verbose=*) ;;
    *) refuse "--nnet-forward-opts $__word" "networks give log posteriors less log priors" ;;
  esac
done
