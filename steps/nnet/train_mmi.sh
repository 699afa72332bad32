#!/usr/bin/env bash
# Trains a network further by maximum mutual information (MMI), on lattices of the training data. Run again with the same options it resumes.

usage() {
  cat <<EOF
Usage: steps/nnet/train_mmi.sh [options] <data-dir> <lang-dir> <src-dir> <ali-dir> <denlats-dir> <exp-dir>
 e.g.: steps/nnet/train_mmi.sh --num-iters 4 --acwt 0.1 data-fbank/train data/lang exp/dnn exp/dnn_ali exp/dnn_denlats exp/dnn_mmi
<src-dir> is one of steps/nnet/train.sh, or Kaldi's; the alignments and the lattices are of its model (steps/nnet/align.sh, make_denlats.sh).
Writes what steps/nnet/train.sh writes, and <exp-dir>/store and <exp-dir>/denlats, what it is trained on.
Options, Kaldi's with Kaldi's defaults:
  --num-iters <n>                  # over the data (4)
  --learn-rate <rate>              # of the first (0.00001), for derivatives summed over an utterance, which is an update
  --halving-factor <factor>        # on the rate, from iteration to iteration (1.0)
  --momentum <m>                   # (0)
  --acwt <scale>, --lmwt <scale>   # of log-likelihoods (0.1), and of graph costs (1.0)
  --boost <b>                      # boosted MMI: a frame with a wrong phone lowers the cost of a path by so much (0)
  --drop-frames true|false         # frames whose reference is not in the lattice have no derivative (true)
  --unkphonelist <phones>          # with colons between them: treated as silence, too
  --nnet <file>                    # nnet1 network in place of <src-dir>/final.nnet
  --use-gpu yes|no|optional, --seed <n>
and
  --cv-percent <percent>           # of the data that is held out; on them the objective is followed (10)
  --xent-smoothing <share>         # of cross-entropy in the derivative (0)
  --minibatch-utts <n>             # utterances an update (1)
Options of steps/nnet/train.sh (--ngpu, --strategy, --optimizer, --schedule ...) are for this, too. Not here: --ivector.
EOF
  job_usage '  --lr-scale none|linear|sqrt, --blocks, --serial-warmup <epochs>'
}

[ -f path.sh ] && . ./path.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../utils/shared/nnet_job.sh"
parse_job train_mmi 6 "$@"
retry "$retries" "$cmd" "$job_log" pykaldist train "${options[@]}" "$store" "$exp" || exit $?
say_result "$job_log" "network in $exp/final.pt"
