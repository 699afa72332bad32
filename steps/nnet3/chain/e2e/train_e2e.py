#!/usr/bin/env bash
# Trains a chain (LF-MMI) model from transcripts alone, with the options of Kaldi's script. Run again with the same options it resumes.

usage() {
  cat <<EOF
Usage: steps/nnet3/chain/e2e/train_e2e.py [options] --feat-dir <data> --tree-dir <tree> --dir <exp-dir>
 e.g.: steps/nnet3/chain/e2e/train_e2e.py --cmd run.pl --feat-dir data/train_hires --tree-dir exp/chain/e2e_tree --dir exp/chain/e2e \\
         --chain.leaky-hmm-coefficient 0.1 --chain.l2-regularize 0.00005 --trainer.num-epochs 10 \\
         --trainer.num-chunk-per-minibatch 150=128/300=64/600=32 --trainer.optimization.num-jobs-final 4
<tree> has the tree, the model and the graphs of transcripts (steps/nnet3/chain/e2e/prepare_e2e.sh), and phone_lm.fst (of chain-est-phone-lm). The
network is that of <exp-dir>/configs (steps/nnet3/xconfig_to_configs.py). A chunk is a whole utterance, as long as the next of the lengths in
<data>/allowed_lengths.txt; without that file lengths are 4 % apart. Writes what steps/nnet3/chain/train.py writes.
Options of Kaldi's script are those of steps/nnet3/chain/train.py without --lat-dir and tolerances, with the same defaults; see there
  --feat.cmvn-opts, --feat.online-ivector-dir, --chain.l2-regularize, --chain.xent-regularize, --chain.leaky-hmm-coefficient,
  --chain.frame-subsampling-factor, --chain.apply-deriv-weights
  --trainer.num-epochs <n>                   # each over the data --chain.frame-subsampling-factor times, once with each shift (10)
  --trainer.num-chunk-per-minibatch <n>      # or rules by the chunks' length, as 150=128/300=64/600=32 (128)
  --trainer.input-model, --trainer.frames-per-iter, --trainer.max-param-change, --trainer.dropout-schedule, --trainer.srand,
  --trainer.optimization.{num-jobs-initial,num-jobs-final,initial-effective-lrate,final-effective-lrate,momentum,do-final-combination}
  --egs.opts "--num-utts-subset <n>", --use-gpu yes|no|wait, --cmd <command>
taken, and change nothing here
  --egs.chunk-width, --chain.lm-opts, --chain.{left,right}-tolerance, and what steps/nnet3/chain/train.py takes so
Options of \`pykaldist train\` that Kaldi has not can be given, too, and go before: --strategy, --average-period, --ngpu, --dtype ...
EOF
  job_usage '  --lr-scale none|linear|sqrt, --blocks, --serial-warmup <epochs>'
}

[ -f path.sh ] && . ./path.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../../../utils/shared/nnet_job.sh"
parse_nnet3_job "$@"
train_nnet3 prepare-chain train_e2e
