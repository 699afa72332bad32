#!/usr/bin/env bash
# Trains a chain (LF-MMI) model, with the options of Kaldi's script. Run again with the same options it resumes; with others it starts clean.

usage() {
  cat <<EOF
Usage: steps/nnet3/chain/train.py [options] --feat-dir <data> --tree-dir <tree> --lat-dir <alignment> --dir <exp-dir>
 e.g.: steps/nnet3/chain/train.py --cmd run.pl --feat-dir data/train_hires --tree-dir exp/chain/tree --lat-dir exp/tri3_ali \\
         --chain.xent-regularize 0.1 --chain.leaky-hmm-coefficient 0.1 --egs.chunk-width 150,110,100 --trainer.num-epochs 4 \\
         --trainer.optimization.num-jobs-final 4 --dir exp/chain/tdnn
The network is that of <exp-dir>/configs (steps/nnet3/xconfig_to_configs.py). <alignment> has ali.*.gz, of steps/align_fmllr.sh say; where it
has none, the alignment of <tree> is taken, whose frames are those of the outputs. Writes <exp-dir>/final.mdl, tree, den.fst, cmvn_opts,
frame_subsampling_factor, history.jsonl, config.json, ckpt/, store/ (features, chunks) and log/{prepare,train}.log.
Options of Kaldi's script, with its defaults
  --feat.cmvn-opts <opts>, --feat.online-ivector-dir <dir>
  --chain.lm-opts <opts>                     # --ngram-order, --no-prune-ngram-order, --num-extra-lm-states
  --chain.l2-regularize (0.0), --chain.xent-regularize (0.0), --chain.leaky-hmm-coefficient (0.00001), --chain.apply-deriv-weights (true)
  --chain.left-tolerance (5), --chain.right-tolerance (5)
  --chain.frame-subsampling-factor (3), --chain.alignment-subsampling-factor (3)   # frames of features, of alignments, to an output's
  --egs.chunk-width <frames>,<frames>...     # of chunks; the first is taken as often as it fits (20)
  --egs.opts "--frames-overlap-per-eg 0 --num-utts-subset <n>"   # utterances held out (2.5 %, at most 300)
  --egs.opts "--lattice-lm-scale <scale>"    # share of lattices' costs in the numerators, below 1 (0)
  --egs.opts "--online-cmvn true"            # CMVN by what was heard of the speaker so far, with the options of --feat.cmvn-opts
  --egs.chunk-left-context (0), --egs.chunk-right-context (0)   # frames more around a chunk, of recurrent networks
  --egs.chunk-left-context-initial (-1), --egs.chunk-right-context-final (-1)   # before an utterance's first chunk, behind its last one (as many)
  --trainer.deriv-truncate-margin <frames>   # derivatives of recurrent networks go so far beyond a chunk's outputs (through all frames)
  --trainer.input-model <file>               # the network to start from, in place of that of configs/
  --trainer.num-epochs <n>                   # each over the data --chain.frame-subsampling-factor times, once with each shift (10)
  --trainer.num-chunk-per-minibatch <n>      # or 128,64: the largest; or rules as 150=128/300=64 (128)
  --trainer.frames-per-iter <n>              # frames of a worker between two averages (800000), where --average-period is not given
  --trainer.max-param-change (2.0), --trainer.dropout-schedule <schedule>, --trainer.srand (0)
  --trainer.optimization.num-jobs-initial <n>, --trainer.optimization.num-jobs-final <n>   # workers at first (1), in the end (8)
  --trainer.optimization.initial-effective-lrate (0.0002), --trainer.optimization.final-effective-lrate (0.00002)   # times the workers
  --trainer.optimization.momentum (0.0), --trainer.optimization.do-final-combination (true), --trainer.optimization.max-models-combine (20)
  --use-gpu yes|no|wait                      # yes and wait: where there is one (yes)
  --cmd <command>                            # how to run the jobs (run.pl)
taken, and change nothing here
  --stage, --exit-stage, --egs.{cmd,nj,stage}, --cleanup, --cleanup.{remove-egs,preserve-model-interval}, --reporting.{email,interval},
  --trainer.{shuffle-buffer-size,samples-per-iter,add-option}, --trainer.lda.{rand-prune,max-lda-jobs}, --chain.left-deriv-truncate,
  --trainer.optimization.{num-jobs-step,shrink-saturation-threshold,backstitch-training-interval,max-objective-evaluations,combine-sum-to-one-penalty}
  --trainer.optimization.shrink-value (with a NOTE), --egs.dir ""
  and of --egs.opts --constrained (with a NOTE), --num-egs-diagnostic, --num-{train,valid}-egs-combine, --normalize-egs true, --nj and the like
Not here: --egs.dir <dir>, --trainer.optimization.{proportional-shrink,backstitch-training-scale}, --chain-opts.
Options of \`pykaldist train\` that Kaldi has not can be given, too, and go before: --strategy, --average-period, --ngpu, --dtype ...
EOF
  job_usage '  --lr-scale none|linear|sqrt, --blocks, --serial-warmup <epochs>'
}

[ -f path.sh ] && . ./path.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../../utils/shared/nnet_job.sh"
parse_nnet3_job "$@"
train_nnet3 prepare-chain train
