# Sourced by a recipe's run.sh: its options, and what stages of several recipes have in common.
#   . "$(dirname "${BASH_SOURCE[0]}")/utils/recipe.sh" || exit 1
# Before it, run.sh defines corpus_options(), which prints the help of --corpus and of options of its own, and sets the defaults of those
# (default_ngpu is that of --ngpu).
# After it, run.sh is in its own folder, every option is set, and any command that fails ends it.

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
  --rbm true|false                # whether the network starts from a stack of RBMs, or from random weights (true)
  --nj <n>                        # parallel jobs (the machine's cores)
  --ngpu <n>                      # workers in training, on as many devices or cores as there are (${default_ngpu:-1})
  --strategy <name>               # what they exchange; \`pykaldist train --help\` lists them (ma)
  --train-opts <options>          # more for steps/nnet/train.sh, such as "--average-period 20 --learn-rate 0.004"
  --rbm-ngpu <n>                  # workers in pretraining (1)
  --seed <n>                      # of the GMMs, the RBMs and the network (the scripts' own)
  --device <name>                 # cpu, cuda, cuda:N or auto (auto)
  --deterministic true|false      # the same numbers on every machine, with any --nj and number of threads (false)
  --cmd <command>                 # how to run jobs (see cmd.sh)
EOF
}

cd "$(dirname "$0")" || exit 1
. ./cmd.sh
stage=0 stop_stage=8 corpus="" ali_dir="" ali_opts="" rbm=true rbm_ngpu=1 nj=$(nproc) ngpu=${default_ngpu:-1} strategy=ma train_opts=""
seed="" device=auto deterministic=${PYKALDIST_DETERMINISTIC:-false}
. ./path.sh
. parse_options.sh || exit 1
[ $# = 0 ] || { usage >&2; exit 1; }
. say_what.sh
export PYKALDIST_TOLD=recipe
case $corpus in "" | /*) ;; *) corpus=$OLDPWD/$corpus ;; esac  # as the caller's folder has it
case $ali_dir in "" | /*) ;; *) ali_dir=$OLDPWD/$ali_dir ;; esac
jobs=(--nj "$nj" --cmd "$cmd") decode_opts=""  # more for steps/decode.sh, where a recipe wants it
workers=(--cmd "$cmd" --strategy "$strategy" --device "$device" ${seed:+--seed "$seed"})
tests=(test)  # or (dev test): LMWT and insertion penalty are then chosen on data/dev
set -e

# tell: what stages print on stdout goes through it: a script's line gets the seconds that it took
tell() {
  local line before now took clear=""
  [ ! -t 1 ] || clear=$'\r\e[K'  # where a step's beginning stands, or stood a bar
  before=${EPOCHREALTIME/./}
  while IFS= read -r line; do
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
trap 'exec >&"$terminal"; wait $tell' EXIT

# want N "what": true if stage N is to be run, and says so
want() { [ "$stage" -le "$1" ] && [ "$stop_stage" -ge "$1" ] && echo "== stage $1: $2"; }

# Kernels are compiled while the first stages run; nothing is done where they have been.
mkdir -p exp/log
PYKALDIST_PROGRESS_FD=3 nice -n 5 pykaldist compile --background 3>&2 > exp/log/compile.log 2>&1 {terminal}>&- &

# systems DATA NAME...: the GMMs of stage 2, of which the last one aligns for the network, and the folder of the features that the network
# sees. With --ali-dir there are none, and the network sees data. Sets $data, $gmms, $ali and $graph.
systems() {
  data=$1 gmms=("${@:2}") ali=exp/${!#}_ali graph=exp/${!#}/graph
  if [ -n "$ali_dir" ]; then data=data gmms=() ali=exp/ali graph=exp/ali/graph; fi
}

# make_mfcc: features and CMVN statistics of data/{train,test}, and data/dev where there is one
make_mfcc() {
  local set
  for set in train "${tests[@]}"; do
    steps/make_mfcc.sh "${jobs[@]}" data/$set exp/make_mfcc/$set mfcc
    utils/fix_data_dir.sh data/$set | grep -v ' has [0-9]* utterances$' || true  # up to 1 % may have had unusable audio
    steps/compute_cmvn_stats.sh data/$set exp/make_mfcc/$set mfcc
  done
}

# import_ali: the alignments of --ali-dir, and the decoding graph of their system
import_ali() {
  steps/import_ali.sh "${jobs[@]}" $ali_opts "$ali_dir" data/train data/lang "$ali"
  utils/mkgraph.sh data/lang_test "$ali" "$graph"
}

# decode_dir SET: the name of its decode directories: decode for test, decode_dev for dev
decode_dir() { [ "$1" = test ] && echo decode || echo "decode_$1"; }

# train_gmm NAME SCRIPT [ARGUMENT ...]: trains exp/NAME with steps/SCRIPT.sh, aligns data/train with it, makes its graph, decodes data/test
train_gmm() {
  local exp=exp/$1 script=$2 align=align_si decode=decode set
  [ "$script" != train_sat ] || align=align_fmllr decode=decode_fmllr
  steps/"$script".sh "${jobs[@]}" ${seed:+--seed "$seed"} "${@:3}" "$exp"
  steps/$align.sh "${jobs[@]}" data/train data/lang "$exp" "${exp}_ali"
  utils/mkgraph.sh data/lang_test "$exp" "$exp/graph"
  for set in "${tests[@]}"; do
    steps/$decode.sh "${jobs[@]}" --skip-scoring true $decode_opts "$exp/graph" data/$set "$exp/$(decode_dir $set)"
  done
}

# make_fmllr NAME: data-fmllr/{train,test}, the features that exp/NAME sees, with the transforms of its alignments and of its decoding
make_fmllr() {
  local gmm=exp/$1 make=steps/nnet/make_fmllr_feats.sh set
  $make "${jobs[@]}" --transform-dir "${gmm}_ali" data-fmllr/train data/train "$gmm" exp/make_fmllr/train fmllr
  for set in "${tests[@]}"; do
    $make "${jobs[@]}" --transform-dir "$gmm/$(decode_dir $set)" data-fmllr/$set data/$set "$gmm" exp/make_fmllr/$set fmllr
  done
}

# pack: the frame store of the network: features that are adapted already as they are, others after CMVN and with deltas
pack() {
  local features=(--delta-opts "--delta-order=2")
  [ "$data" != data-fmllr ] || features=(--cmvn-opts "--norm-means=false")
  steps/nnet/pack.sh --cmd "$cmd" "${features[@]}" "$data/train" "$ali" exp/dnn/store
}

# pretrain_dbn OPTION...: RBMs of a network of that shape
pretrain_dbn() {
  if $rbm; then
    steps/nnet/pretrain_dbn.sh "${workers[@]}" --ngpu "$rbm_ngpu" "$@" exp/dnn/store exp/dbn
  else
    echo "run.sh: without --rbm true, the network starts from random weights"
  fi
}

# train_dnn OPTION...: the network, with options of steps/nnet/train.sh to which --train-opts adds
train_dnn() {
  local start=()
  ! $rbm || start+=(--dbn exp/dbn)
  [ "$ngpu" = 1 ] || start+=(--serial-warmup 1)
  [ -z "$seed" ] || start+=(--randomizer-seed "$seed")
  steps/nnet/train.sh "${workers[@]}" --ngpu "$ngpu" "${start[@]}" "$@" $train_opts exp/dnn/store exp/dnn
}

# decode_dnn: lattices of the test set by the network
decode_dnn() {
  local set
  for set in "${tests[@]}"; do
    steps/decode.sh "${jobs[@]}" --skip-scoring true $decode_opts "$graph" "$data/$set" "exp/dnn/$(decode_dir $set)"
  done
}

# score: WER of every system, at the LMWT and the insertion penalty that are best on data/dev where there is one
score() {
  local system set dev
  for system in "${gmms[@]}" dnn; do
    dev=""
    for set in "${tests[@]}"; do
      utils/score.sh --cmd "$cmd" ${dev:+--dev-dir "$dev"} data/$set "$graph" "exp/$system/$(decode_dir $set)"
      dev=exp/$system/decode_$set
    done
  done
}

# report: a table of every system, and what to try next
report() {
  local audio
  pykaldist report exp
  audio=$(sed -n '1s/^[^ ]* //p' data/test/wav.scp)
  [ -f "$audio" ] || audio=recording.wav
  cat <<EOF

The whole took $((SECONDS / 60)) min $((SECONDS % 60)) s. To try next, in $PWD:
  ./run.sh --stage 5 --ngpu 32                   # the network again, by 32 workers that average their models
  ./run.sh --stage 5 --ngpu 4 --strategy bmuf    # by another strategy (./run.sh --help lists them)
  steps/transcribe.sh $graph exp/dnn FILE.wav    # a recording of your own, or one of the test set:
  steps/transcribe.sh $graph exp/dnn $audio
EOF
}
