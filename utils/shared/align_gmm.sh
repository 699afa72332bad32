# Sourced by steps/align_{si,fmllr,basis_fmllr}.sh, which set: verb, and name, where it is another; example, two directories; writes, the files; own, the names of their own options
# with defaults set, and own_usage, the lines on these.
name=${name:-${verb//-/_}.sh}

usage() {
  cat <<EOF
Usage: steps/$name [options] <data-dir> <lang-dir> <src-dir> <ali-dir>
 e.g.: steps/$name --nj 2 --boost-silence 1.25 data/train data/lang $example
Writes $writes, to <ali-dir>.
Options:
  --nj <n>                  # jobs, and files of alignments, no more than utterances (4)
  --cmd <command>           # how to run the jobs (run.pl)
  --device <name>           # cpu, cuda, cuda:N, or auto: where likelihoods and statistics are computed (cpu)
  --jobs <kind>             # threads: --nj of one job; array: --nj jobs, each a process; auto: an array on a cluster (auto)
  --block-frames <n>        # frames summed up together; the same blocks give models of the same bits, whatever --nj and --jobs
                            # (0: 262144; in an array no more than a job has, and 65536 at least)
  --use-graphs true|false   # taken as Kaldi takes it, and changes nothing: trainings store no graphs, and alignment compiles the same
                            # ones again, in about a millisecond an utterance
  --beam <beam>             # of the alignment (10)
  --retry-beam <beam>       # where an utterance does not reach its end (40)
  --careful true|false      # let an utterance fail that fits its transcript better said again, in part, than said once (false)
  --boost-silence <factor>  # on the likelihoods of silence ($boost_silence)
  --scale-opts <options>    # of alignment ("--transition-scale=1.0 --acoustic-scale=0.1 --self-loop-scale=0.1")
EOF
  [ -z "$own_usage" ] || printf '%s\n' "$own_usage"
}

nj=4 cmd=run.pl jobs=auto block_frames=0 device=cpu use_graphs=false beam=10 retry_beam=40 careful=false boost_silence=${boost_silence:-1.0} scale_opts=""
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 4 ]; then usage >&2; exit 1; fi
data=$1 lang=$2 src=$3 dir=$4
for f in "$data/feats.scp" "$data/text" "$lang/L.fst" "$src/final.mdl" "$src/tree"; do
  [ -f "$f" ] || { echo "$name: ERROR: $f does not exist; run the stage that makes it." >&2; exit 1; }
done
. gmm_jobs.sh
. fewer_jobs.sh
fewer_jobs "$data" utterances
options=()
for option in nj block_frames device beam retry_beam careful boost_silence "${own[@]}"; do options+=("--${option//_/-}=${!option}"); done

gmm_jobs
$stage_cmd "$dir/log/align.log" pykaldist "$verb" "${options[@]}" $scale_opts ${basis_fmllr_opts:-} "$@" || exit 1
grep '^WARNING:' "$dir/log/align.log" | sed "s/^/$name: /" >&2
echo "$name: $(sed -n 's/^SUMMARY: //p' "$dir/log/align.log"); alignments in $dir"
