# Sourced by the stages that train, whose command goes on where it was when it is run again. Usage:
#   job_usage <lines>    # the end of their usage, what all of them take; <lines>: what the script takes more of the kind
#   parse_job <form> <n> "$@"   # options of the command into $options, but for --cmd and --retries; the arguments into $store and $exp,
#                               # the job's log into $job_log.
#                               # <n> arguments that name no store are Kaldi's form of the script: the store is packed then (kaldi-form)
#   parse_nnet3_job "$@"    # the same of steps/nnet3/chain/train.py and others, which have options alone; --dir is $exp
#   train_nnet3 <verb> <script>   # what follows it: preparation by a verb in the words of that script, and training
#   retry <retries> <cmd> <log> <command> [<argument> ...] || exit $?
#   say_result <log> <what>   # the last epoch as the log has it, without its seconds, and what was made; or that it was there already
# <cmd> runs the command with its output in <log>, as utils/run.pl, queue.pl and slurm.pl do. Where the command died of what another try may mend,
# it is run again, up to <retries> times: exit status 75 (a process of a job was killed, or hung) or 137 (all of it), as the log's last line
# says. An error, Ctrl-C or SIGTERM, which are handed on, is not. The status is the command's; a log that is there becomes <log>.before.log.

job_usage() {
  cat <<EOF
who computes, where, and what is exchanged
  --ngpu <n>               # workers (1); they share processes where there are fewer GPUs or cores
  --nproc <n>              # processes (one a GPU, or a CPU core, up to --ngpu)
  --fabric mpi|nccl|gloo|virtual, --hosts node1,node2:4 or a file with a host a line; srun is used under SLURM, and torchrun's variables
  --device <name>          # cpu, cuda, cuda:N or auto (auto)
  --num-threads, --deterministic true (the same numbers on every machine, for any number of processes and any fabric)
  --strategy <name>        # what workers exchange: \`pykaldist train --help\` lists all with their options
$1
  --timeout <s>            # without progress of any process, after which the job is ended (600)
  --start-timeout <s>      # in which the processes have to meet (60)
  --checkpoint-minutes, --keep-checkpoints
and
  --retries <n>            # tries more from the last checkpoint, where a process was killed or hung (2)
  --cmd <command>          # how to run (run.pl)
EOF
}

parse_options_of_job() {
  cmd=run.pl retries=2 options=()
  printf -v PYKALDIST_COMMAND '%q ' "$0" "$@"
  export PYKALDIST_COMMAND=${PYKALDIST_COMMAND% }  # for the record of what is made (pykaldist/io/provenance.py)
  while [[ ${1:-} == --* ]]; do
    case $1 in
      --help) usage; exit 0 ;;
      --cmd=*) cmd=${1#*=}; shift; continue ;;
      --retries=*) retries=${1#*=}; shift; continue ;;
      --*=*) options+=("$1"); shift; continue ;;
    esac
    [ $# -ge 2 ] || { echo "${0##*/}: ERROR: option $1 needs a value." >&2; exit 1; }
    case $1 in --cmd) cmd=$2 ;; --retries) retries=$2 ;; *) options+=("$1" "$2") ;; esac
    shift 2
  done
  arguments=("$@")
}

parse_nnet3_job() {
  local word name=${0##*/} before=""
  parse_options_of_job "$@"
  if [ ${#options[@]} = 0 ] || [ ${#arguments[@]} != 0 ]; then usage >&2; exit 1; fi
  for word in "${options[@]}"; do
    case $before in --dir) exp=$word ;; esac
    case $word in --dir=*) exp=${word#*=} ;; esac
    before=$word
  done
  [ -n "${exp:-}" ] || { echo "$name: ERROR: --dir is needed." >&2; exit 1; }
  . own_runner.sh
  . say_what.sh
  . guard.sh
  job_log=$exp/log/train.log
}

train_nnet3() {
  local name=${0##*/}
  $cmd "$exp/log/prepare.log" pykaldist "$1" "$2" "${options[@]}" || exit $?
  sed -n "s/^\(NOTE\|WARNING\): /$name: &/p; s|^$exp/.*|$name: &|p" "$exp/log/prepare.log"
  mapfile -t options < "$exp/train_options"
  retry "$retries" "$cmd" "$job_log" pykaldist train "${options[@]}" "$exp/store" "$exp" || exit $?
  say_result "$job_log" "model in $exp/final.mdl"
}

parse_job() {
  local f name=${0##*/} form=$1 number=$2
  shift 2
  parse_options_of_job "$@"
  set -- "${arguments[@]}"
  if [ $# != "$number" ] && { [ $# != 2 ] || [[ $form == train_m* ]]; }; then usage >&2; exit 1; fi  # sequence training has one form
  . own_runner.sh
  . say_what.sh
  . guard.sh
  exp=${!#}
  if [ $# = "$number" ] && { [ $# != 2 ] || { [ -f "$1/feats.scp" ] && [ ! -f "$1/train/manifest.json" ]; }; }; then
    pack_kaldi_form "$form" "$@"
    return
  fi
  store=$1 job_log=$exp/log/$form.log
  for f in "$store/train/manifest.json" "$store/dev/manifest.json"; do
    [ -f "$f" ] || { echo "$name: ERROR: no file $f; pack first: steps/nnet/pack.sh data-fbank/train exp/tri3_ali $store" >&2; exit 1; }
  done
}

pack_kaldi_form() {
  local log=$exp/log/pack.log
  store=$exp/store job_log=$exp/log/$1_job.log  # recipes have the script's own output in a log of its name
  $cmd "$log" pykaldist kaldi-form "$1" "${options[@]}" "${@:2}" || exit $?
  sed -n "s/^NOTE: /$name: NOTE: /p; s|^$store.*|$name: &|p" "$log"
  mapfile -t options < "$exp/options"
}

retry() {
  local retries=$1 cmd=$2 log=$3 try status code child="" stopped=""
  shift 3
  [[ $retries =~ ^[0-9]+$ ]] || { echo "$0: ERROR: option --retries takes a whole number, found '$retries'." >&2; return 1; }
  trap 'stopped=143; kill -TERM $child 2>/dev/null' TERM
  trap 'stopped=130; kill -TERM $child 2>/dev/null' INT  # a background job is deaf to Ctrl-C
  for ((try = 1; ; try++)); do
    [ ! -f "$log" ] || mv "$log" "${log%.log}.before.log"
    $cmd "$log" "$@" &
    child=$!
    wait $child; status=$?
    while kill -0 $child 2>/dev/null; do wait $child; status=$?; done  # a signal ends a wait early
    code=$(sed -n 's/^# Ended (code \([0-9]*\).*/\1/p; s/^# Finished at .* with status \([0-9]*\)$/\1/p' "$log" 2>/dev/null | tail -n 1)
    [ "$status" = 0 ] || status=${stopped:-${code:-$status}}
    { [ "$status" = 75 ] || [ "$status" = 137 ]; } && [ "$try" -le "$retries" ] || break
    echo "$0: it goes on from the last checkpoint, try $((try + 1)) of $((retries + 1))." >&2
    sleep 2  # until what is left of the job is gone
  done
  trap - TERM
  trap __interrupted INT
  [ "$status" != 130 ] || __interrupted
  return "$status"
}

say_result() {
  local line
  line=$(grep 'epoch [0-9]*: \|is already there' "$1" | tail -n 1)
  case $line in *"is already there"*) ;; *) line="${line%%; [0-9]* s [ms][ei]*}; $2" ;; esac
  echo "${0##*/}: $line"
}
