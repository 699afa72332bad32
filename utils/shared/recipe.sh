# Sourced by a recipe's run.sh, which has the commands of its stages: the options, `want`, the seconds of each step, the lines at the end.
#   . "$(dirname "${BASH_SOURCE[0]}")/utils/shared/recipe.sh" || exit 1
# Before it, run.sh defines corpus_options(), which prints the help of --corpus and of options of its own, and sets the defaults of those
# (default_ngpu, default_strategy and default_rbm are those of --ngpu, --strategy and --rbm).
# After it, run.sh is in its own folder, every option is set, and any command that fails ends it. Beside the options there are $dbn, where
# the RBMs go (empty with --rbm false), and $warmup, epochs by one worker before several share the work (empty with --ngpu 1).

usage() {
  cat <<EOF
Usage: ./run.sh [options]
 e.g.: ./run.sh                          # everything
       ./run.sh --stage 5 --ngpu 1       # from training on
Stages: 0 corpus, language, language model   1 features         2 GMMs, or imported alignments       3 frame store
        4 RBM pretraining, optional          5 network training 6 decoding   7 scoring               8 report
Options:
  --stage <n>, --stop-stage <n>   # first and last stage to run (0, 8)
EOF
  corpus_options
  cat <<EOF
  --ali-dir <source>              # alignments to import in stage 2 instead of a GMM (see steps/import_ali.sh); the same at later stages
  --ali-opts <options>            # for steps/import_ali.sh, such as "--max-unmatched 20"
  --rbm true|false                # whether the network starts from a stack of RBMs, or from random weights (${default_rbm:-true})
  --nj <n>                        # parallel jobs (the machine's cores)
  --ngpu <n>                      # workers in training, on as many devices or cores as there are (${default_ngpu:-1})
  --strategy <name>               # what they exchange; \`pykaldist train --help\` lists them (${default_strategy:-ma})
  --train-opts <options>          # more for steps/nnet/train.sh, such as "--average-period 20 --learn-rate 0.004"
  --rbm-ngpu <n>                  # workers in pretraining (1)
  --seed <n>                      # of the GMMs, the RBMs and the network (the scripts' own)
  --device <name>                 # cpu, cuda, cuda:N or auto (auto)
  --deterministic true|false      # the same numbers on every machine, with any --nj and number of threads (false)
  --cmd <command>                 # how to run jobs (see cmd.sh)
  --dry-run true|false            # print what would be run, and run nothing (false)
  --work-dir <dir>                # folder for data, features and experiments in place of the recipe's own, which is then only read
EOF
}

for option; do case $option in --work-dir | --work-dir=*) . "$(dirname "${BASH_SOURCE[0]}")/work_dir.sh" ;; esac; done

cd "$(dirname "$0")" || exit 1
. ./cmd.sh
stage=0 stop_stage=8 corpus="" ali_dir="" ali_opts="" rbm=${default_rbm:-true} rbm_ngpu=1 nj=$(nproc) train_opts=""
ngpu=${default_ngpu:-1} strategy=${default_strategy:-ma}
seed="" device=auto dry_run=false deterministic=${PYKALDIST_DETERMINISTIC:-false}
. ./path.sh
. parse_options.sh || exit 1
[ $# = 0 ] || { usage >&2; exit 1; }
. say_what.sh
. guard.sh
export PYKALDIST_TOLD=recipe
case $corpus in "" | /*) ;; *) corpus=$OLDPWD/$corpus ;; esac  # as the caller's folder has it
case $ali_dir in "" | /*) ;; *) ali_dir=$OLDPWD/$ali_dir ;; esac
dbn=exp/dbn warmup=1
$rbm || dbn=""
[ "$ngpu" != 1 ] || warmup=""
set -e

# want N "what": true if stage N is to be run, and says so
want() { [ "$stage" -le "$1" ] && [ "$stop_stage" -ge "$1" ] && echo "== stage $1: $2"; }

# with_rbms: true if the network starts from RBMs; says so where it does not
with_rbms() { $rbm || { echo "run.sh: without --rbm true, the network starts from random weights"; return 1; } }

# say_next [TEST]: how long it took, and what to try next; TEST is a data directory (data/test)
say_next() {
  local audio
  audio=$(sed -n '1s/^[^ ]* //p' "${1:-data/test}/wav.scp")
  [ -f "$audio" ] || audio=recording.wav
  cat <<EOF

The whole took $((SECONDS / 60)) min $((SECONDS % 60)) s. To try next, in $PWD:
  ./run.sh --stage 5 --ngpu 32                   # the network again, by 32 workers
  ./run.sh --stage 5 --ngpu 4 --strategy easgd   # by another strategy (./run.sh --help lists them)
  utils/pykaldist transcribe exp/dnn FILE.wav    # a recording of your own, or one of the test set:
  utils/pykaldist transcribe exp/dnn $audio
  utils/pykaldist report exp --html report.html  # the page of all of it, for a browser
EOF
}

if $dry_run; then . dry_run.sh; return; fi

# tell: what stages print on stdout goes through it: a script's line gets the seconds that it took; that fix_data_dir.sh had nothing to mend
# is not said
tell() {
  local line before now took clear=""
  [ ! -t 1 ] || clear=$'\r\e[K'  # where a step's beginning stands, or stood a bar
  before=${EPOCHREALTIME/./}
  while IFS= read -r line; do
    [[ ! $line =~ ^fix_data_dir\.sh:.*\ has\ [0-9]*\ utterances$ ]] || continue
    now=${EPOCHREALTIME/./}
    if [[ $line =~ ^([a-z0-9_]+\.sh):\ (.*)$ ]]; then
      took=$(((now - before) / 100000)) took="$((took / 10)).$((took % 10)) s"
      printf '%s%8s  %-23s %s\n' "$clear" "${took#0.0 s}" "${BASH_REMATCH[1]}:" "${BASH_REMATCH[2]}"
    else
      printf '%s%s\n' "$clear" "$line"
    fi
    before=$now
  done
}
exec {terminal}>&1 > >(tell)
tell=$!
# At the end what stages have printed is waited for; not long, as after a signal they go on until the guard ends them, which then waits for this.
trap 'exec >&"$terminal"; for ((i = 0; i < 20; i++)); do kill -0 $tell 2>/dev/null || break; sleep 0.02; done' EXIT

# Kernels are compiled while the first stages run; nothing is done where they have been. Stages wait for them: not at a lower priority.
mkdir -p exp/log
PYKALDIST_PROGRESS_FD=3 pykaldist compile --background 3>&2 > exp/log/compile.log 2>&1 {terminal}>&- &
