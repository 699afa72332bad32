# Sourced by the scripts of GMM training and alignment. `array_job_usage [<what nj is>]` prints the options of jobs that may be an array,
# `keep_feats_usage` where features are meanwhile, `gmm_job_usage` both and --device; `gmm_alignment_usage` the options of alignments.
# `gmm_jobs`, with $jobs, $cmd and $nj: sets stage_cmd, by which the stage runs, and adds to $options how it is to run its jobs. On a cluster
# the stage itself, which only adds up, runs where the script does.
array_job_usage() {
  cat <<EOF
  --nj <n>                  # ${1:-jobs, and files of alignments, no more than utterances (4)}
  --cmd <command>           # how to run the jobs (run.pl)
  --jobs <kind>             # threads: --nj of one job; array: --nj jobs, each a process; auto: an array on a cluster (auto)
  --block-frames <n>        # frames summed up together; the same blocks give models of the same bits, whatever --nj and --jobs
                            # (0: 262144; in an array no more than a job has, and 65536 at least)
EOF
}

keep_feats_usage() {
  cat <<EOF
  --keep-feats <which>      # true: what CMVN, deltas, LDA and transforms make of the features lies on disk while the stage runs, 156 bytes a
                            # frame of MFCCs with deltas; false: each pass makes it anew, as in Kaldi; auto: false in alignment (auto)
EOF
}

gmm_job_usage() {
  array_job_usage "$@"
  keep_feats_usage
  echo "  --device <name>           # cpu, cuda, cuda:N, or auto: where likelihoods and statistics are computed (cpu)"
}

gmm_alignment_usage() {
  cat <<EOF
  --retry-beam <beam>       # where an utterance does not reach its end (40)
  --careful true|false      # let an utterance fail that fits its transcript better said again, in part, than said once (false)
  --boost-silence <factor>  # on the likelihoods of silence in alignment ($boost_silence)
  --scale-opts <options>    # of alignment ("--transition-scale=1.0 --acoustic-scale=0.1 --self-loop-scale=0.1")
EOF
}

gmm_jobs() {
  stage_cmd=$cmd
  case $jobs in
    threads | array) ;;
    auto)
      jobs=threads
      case $cmd in
        *slurm.pl* | *ssh.pl*) jobs=array ;;
        *queue.pl*) ! type -P qsub >/dev/null || jobs=array ;;
      esac ;;
    *) echo "${0##*/}: ERROR: --jobs: expected threads, array or auto, found $jobs." >&2; exit 1 ;;
  esac
  if [ "$jobs" = array ]; then
    stage_cmd=run.pl
    options+=("--jobs-cmd=$cmd")
  elif [[ $cmd != *run.pl* ]]; then
    stage_cmd="$cmd --num-threads $nj"
  fi
}
