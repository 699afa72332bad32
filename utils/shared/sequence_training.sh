# Sourced by steps/nnet/train_mmi.sh and train_mpe.sh, behind their usage(): the options that both have, and the job. Usage:
#   sequence_usage <lines>         # the end of their usage; <lines>: the options that one of them has
#   train_sequence <form> "$@"     # parses the options and arguments, packs the stores, trains
. "$(dirname "${BASH_SOURCE[0]}")/nnet_job.sh"

sequence_usage() {
  cat <<EOF
<src-dir> is one of steps/nnet/train.sh, or Kaldi's; the alignments and the lattices are of its model (steps/nnet/align.sh, make_denlats.sh).
Writes what steps/nnet/train.sh writes, and <exp-dir>/store and <exp-dir>/denlats, what it is trained on.
Options, Kaldi's with Kaldi's defaults:
$1
  --num-iters <n>                  # over the data (4)
  --learn-rate <rate>              # of the first (0.00001), for derivatives summed over an utterance, which is an update
  --halving-factor <factor>        # on the rate, from iteration to iteration (1.0)
  --momentum <m>                   # (0)
  --acwt <scale>, --lmwt <scale>   # of log-likelihoods (0.1), and of graph costs (1.0)
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

train_sequence() {
  parse_job "$1" 6 "${@:2}"
  retry "$retries" "$cmd" "$job_log" pykaldist train "${options[@]}" "$store" "$exp" || exit $?
  say_result "$job_log" "network in $exp/final.pt"
}
