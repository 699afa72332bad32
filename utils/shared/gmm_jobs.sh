# Sourced by the scripts of GMM training and alignment. `gmm_jobs`, with $jobs, $cmd and $nj: sets stage_cmd, by which the stage runs, and
# adds to $options how it is to run its jobs. On a cluster the stage itself, which only adds up, runs where the script does.
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
