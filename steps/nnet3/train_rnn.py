#!/usr/bin/env bash
# Trains a recurrent nnet3 network by cross-entropy, with the options of Kaldi's script. Run again with the same options it resumes.

usage() {
  cat <<EOF
Usage: steps/nnet3/train_rnn.py [options] --feat-dir <data> --ali-dir <alignment> --lang <lang> --dir <exp-dir>
 e.g.: steps/nnet3/train_rnn.py --cmd run.pl --feat-dir data/train_hires --ali-dir exp/tri3_ali --lang data/lang --dir exp/nnet3/lstm \\
         --trainer.num-epochs 4 --trainer.optimization.num-jobs-initial 2 --trainer.optimization.num-jobs-final 4
The network is that of <exp-dir>/configs. It goes through chunks of frames, and some frames around them; steps/nnet3/train_dnn.py, which trains
others, says what is made and written.
Options of Kaldi's script, with its defaults
  --egs.chunk-width <frames>                 # of chunks; of 40,30,20 the first (20)
  --egs.chunk-left-context (40), --egs.chunk-right-context (0)   # frames around a chunk, beyond those that an output needs; around an
                                             # utterance's first and last chunk as well
  --trainer.deriv-truncate-margin <frames>   # derivatives go so far beyond a chunk (8)
  --trainer.num-chunk-per-minibatch <n>, or --trainer.rnn.num-chunk-per-minibatch; of 128,64 the largest (100)
  --trainer.samples-per-iter <n>             # chunks of a worker between two averages (20000)
  --trainer.optimization.momentum (0.5)
as in steps/nnet3/train_dnn.py
  --feat.{cmvn-opts,online-ivector-dir}, --egs.opts, --trainer.{input-model,num-epochs,max-param-change,dropout-schedule,srand}, --use-gpu, --cmd,
  --trainer.optimization.{num-jobs-initial,num-jobs-final,initial-effective-lrate,final-effective-lrate,do-final-combination,max-models-combine}
taken, and change nothing here
  what steps/nnet3/train_dnn.py takes so: --stage, --exit-stage, --egs.{cmd,nj,stage}, --reporting.{email,interval}, --cleanup,
  --cleanup.{remove-egs,preserve-model-interval}, --trainer.lda.{rand-prune,max-lda-jobs},
  --trainer.{shuffle-buffer-size,prior-subset-size,num-jobs-compute-prior,presoftmax-prior-scale-power,add-option},
  --trainer.optimization.{num-jobs-step,max-objective-evaluations,combine-sum-to-one-penalty}; and
  --trainer.optimization.{shrink-value,shrink-saturation-threshold}, --egs.chunk-{left-context-initial,right-context-final} (with a NOTE)
Not here: --egs.dir, --trainer.optimization.{proportional-shrink,backstitch-training-scale}.
Options of \`pykaldist train\` that Kaldi has not can be given, too, and go before: --strategy, --average-period, --ngpu, --dtype ...
EOF
  job_usage '  --lr-scale none|linear|sqrt, --blocks, --serial-warmup <epochs>'
}

[ -f path.sh ] && . ./path.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../utils/shared/nnet_job.sh"
parse_nnet3_job "$@"
train_nnet3 prepare-nnet3 train_rnn
