# Sourced by parse_options.sh and nnet_job.sh when a script's options are read: a runner of jobs in $cmd that is the project's own is called by
# its path. A name is looked up on PATH, where a recipe may have put its own folder. (A path with a space in it cannot stand in $cmd.)
case "${cmd:-}" in
  run.sh | run.sh\ * | utils/run.sh | utils/run.sh\ *)
    echo "$0: ERROR: the runner of jobs is utils/run.pl now, found --cmd '$cmd'." >&2; exit 1 ;;
  run.pl | run.pl\ * | queue.pl | queue.pl\ * | slurm.pl | slurm.pl\ * | ssh.pl | ssh.pl\ * | retry.pl | retry.pl\ *)
    if [[ ${PYKALDIST_ROOT:-} =~ ^[^[:space:]]+$ ]]; then cmd=$PYKALDIST_ROOT/utils/$cmd; fi ;;
esac
