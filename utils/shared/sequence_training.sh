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
  --add-reference true|false       # to each lattice that has no path with its words, at the cost of <denlats-dir>/dengraph (false)
  --realign-iters <n>              # align the data again every n iterations, with the network as it is then; 0: never (0)
  --relattice-iters <n>            # make the lattices again every n iterations (0); <exp-dir>/iters<n> has what is trained before
  --denlats-opts <options>         # for steps/nnet/make_denlats.sh then, such as "--beam 15 --lattice-beam 8"
  --align-opts <options>           # for steps/nnet/align.sh then
  --relattice-beside true|false    # both are made on other cores while the next iteration trains, with the network from before it, and are
                                   # used from the iteration after it on; else training waits for them (false)
  --l2-to-start <penalty>          # on what weights differ by from <src-dir>'s network, or from that of the last new lattices, a frame (0)
  --xent-smoothing <share>         # of cross-entropy in the derivative (0)
  --minibatch-utts <n>             # utterances an update (1)
Options of steps/nnet/train.sh (--ngpu, --strategy, --optimizer, --schedule ...) are for this, too. Not here: --ivector.
EOF
  job_usage '  --lr-scale none|linear|sqrt, --blocks, --serial-warmup <epochs>'
}

train_sequence() {
  [[ " ${*:2}" != *" --"re@(align|lattice)-iters[=\ ]* ]] || { in_rounds "${@:2}"; return; }
  parse_job "$1" 6 "${@:2}"
  retry "$retries" "$cmd" "$job_log" pykaldist train "${options[@]}" "$store" "$exp" || exit $?
  say_result "$job_log" "network in $exp/final.pt"
}

# in_rounds <option> ... <argument> ...: trains between new alignments and lattices by the script itself, each time from the network before.
# What is trained on depends on the iteration alone, never on what was ready first: run again after it was ended, it gives the same network.
in_rounds() {
  local realign_iters=0 relattice_iters=0 num_iters=4 learn_rate=0.00001 halving_factor=1.0 acwt=0.1 denlats_opts="" align_opts="" cmd=run.pl
  local relattice_beside=false options=() first=() name value known done=0 upto ali denlats src nj
  while [[ ${1:-} == --* ]]; do
    if [[ $1 == --*=* ]]; then name=${1%%=*} value=${1#*=}; shift; else name=$1 value=${2:-}; shift 2 || break; fi
    known=${name#--} known=${known//-/_}
    case $known in
      realign_iters | relattice_iters | num_iters | learn_rate | halving_factor | denlats_opts | align_opts | relattice_beside)
        printf -v "$known" '%s' "$value" ;;
      nnet) first=("$name" "$value") ;;  # for what goes on from <src-dir> itself
      acwt | cmd) printf -v "$known" '%s' "$value"; options+=("$name" "$value") ;;
      *) options+=("$name" "$value") ;;
    esac
  done
  if [ $# != 6 ]; then usage >&2; exit 1; fi
  for known in realign_iters relattice_iters num_iters; do
    [[ ${!known} =~ ^[0-9]+$ ]] || { echo "${0##*/}: ERROR: option --${known//_/-} takes a whole number, found '${!known}'." >&2; exit 1; }
  done
  [[ $relattice_beside =~ ^(true|false)$ ]] ||
    { echo "${0##*/}: ERROR: option --relattice-beside takes true or false, found '$relattice_beside'." >&2; exit 1; }
  . say_what.sh
  . guard.sh
  local data=$1 lang=$2 exp=$6 late=0 made="" made_of="" making=""  # made: what, of which network
  src=$3 ali=$4 denlats=$5 nj=$(cat "$5/num_jobs") || exit 1
  [ "$relattice_beside" = false ] || late=1
  for ((upto = 1; upto <= num_iters; upto++)); do
    local again="" out=$exp
    if [ "$upto" -lt "$num_iters" ]; then
      if [ $((upto + late)) -lt "$num_iters" ]; then
        [ "$realign_iters" = 0 ] || [ $((upto % realign_iters)) != 0 ] || again+=" ali"
        [ "$relattice_iters" = 0 ] || [ $((upto % relattice_iters)) != 0 ] || again+=" denlats"
      fi
      [ -n "$again$making" ] || continue
      out=$exp/iters$upto
    fi
    "$PYKALDIST_ROOT/steps/nnet/${0##*/}" "${options[@]}" "${first[@]}" --num-iters $((upto - done)) --halving-factor "$halving_factor" --learn-rate \
      "$(awk -v r="$learn_rate" -v f="$halving_factor" -v n=$done 'BEGIN { printf "%.8g", r * f ^ n }')" \
      "$data" "$lang" "$src" "$ali" "$denlats" "$out" || exit $?
    done=$upto src=$out first=()
    if [ -n "$making" ]; then
      wait "$making" || exit 1
      making=""
      use_made
    fi
    [ -n "$again" ] || continue
    made=$again made_of=$out
    if [ "$relattice_beside" = true ]; then
      make_again &
      making=$!
    else
      make_again || exit 1
      use_made
    fi
  done
}

# Makes $made, with what in_rounds has: alignments and lattices of a network. Lattices that are there are kept by make_denlats.sh.
make_again() {
  local stages=$PYKALDIST_ROOT/steps/nnet
  if [[ $made == *" ali"* ]] && ! [ "$made_of/ali/final.mdl" -nt "$made_of/final.pt" ]; then  # what is newer than the network is of it
    "$stages/align.sh" --nj "$nj" --cmd "$cmd" $align_opts "$data" "$lang" "$made_of" "$made_of/ali" || return 1
  fi
  if [[ $made == *" denlats"* ]]; then
    "$stages/make_denlats.sh" --nj "$nj" --cmd "$cmd" --acwt "$acwt" $denlats_opts "$data" "$lang" "$made_of" "$made_of/new_denlats" || return 1
  fi
}

# Lets in_rounds go on with what was made.
use_made() {
  [[ $made != *" ali"* ]] || ali=$made_of/ali
  [[ $made != *" denlats"* ]] || denlats=$made_of/new_denlats
  echo "${0##*/}: iteration $((done + 1)) has alignments of $ali, lattices of $denlats"
}
