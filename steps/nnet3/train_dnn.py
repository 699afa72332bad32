#!/usr/bin/env bash
# Trains an nnet3 network by cross-entropy, with the options of Kaldi's script. Run again with the same options it resumes.

usage() {
  cat <<EOF
Usage: steps/nnet3/train_dnn.py [options] --feat-dir <data> --ali-dir <alignment> --lang <lang> --dir <exp-dir>
 e.g.: steps/nnet3/train_dnn.py --cmd run.pl --feat-dir data/train_hires --ali-dir exp/tri3_ali --lang data/lang --dir exp/nnet3/tdnn \\
         --trainer.num-epochs 4 --trainer.optimization.num-jobs-initial 2 --trainer.optimization.num-jobs-final 4
The network is that of <exp-dir>/configs (steps/nnet3/xconfig_to_configs.py); configs/lda.mat is made where configs/init.config asks for it. Writes
<exp-dir>/final.mdl with priors, tree, cmvn_opts, history.jsonl, config.json, ckpt/, store/ and log/{prepare,train}.log.
Options of Kaldi's script, with its defaults
  --feat.cmvn-opts <opts>, --feat.online-ivector-dir <dir>
  --egs.opts "--num-utts-subset <n>"         # utterances held out (2.5 %, at most 300)
  --trainer.input-model <file>               # the network to start from, in place of that of configs/
  --trainer.num-epochs <n>                   # (8)
  --trainer.optimization.minibatch-size <n>  # frames; of 256,128 the largest (512)
  --trainer.samples-per-iter <n>             # frames of a worker between two averages (400000)
  --trainer.max-param-change (2.0), --trainer.dropout-schedule <schedule>, --trainer.srand (0)
  --trainer.optimization.num-jobs-initial <n>, --trainer.optimization.num-jobs-final <n>   # workers at first (1), in the end (8)
  --trainer.optimization.initial-effective-lrate (0.0003), --trainer.optimization.final-effective-lrate (0.00003)   # times the workers
  --trainer.optimization.momentum (0.0), --trainer.optimization.do-final-combination (true), --trainer.optimization.max-models-combine (20)
  --use-gpu yes|no|wait                      # yes and wait: where there is one (yes)
  --cmd <command>                            # how to run the jobs (run.pl)
taken, and change nothing here
  --stage, --exit-stage, --egs.{cmd,nj,stage,frames-per-eg}, --cleanup, --cleanup.{remove-egs,preserve-model-interval}, --reporting.{email,interval},
  --trainer.{shuffle-buffer-size,prior-subset-size,num-jobs-compute-prior,presoftmax-prior-scale-power,add-option},
  --trainer.lda.{rand-prune,max-lda-jobs}, --trainer.optimization.{num-jobs-step,max-objective-evaluations,combine-sum-to-one-penalty}
Not here: --egs.dir, --trainer.optimization.{proportional-shrink,backstitch-training-scale}.
Options of \`pykaldist train\` that Kaldi has not can be given, too, and go before: --strategy, --average-period, --ngpu, --dtype ...
EOF
  job_usage '  --lr-scale none|linear|sqrt, --blocks, --serial-warmup <epochs>'
}

[ -f path.sh ] && . ./path.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../utils/shared/nnet_job.sh"
parse_nnet3_job "$@"
train_nnet3 prepare-nnet3 train_dnn
