# Sourced by steps/align_{si,fmllr,basis_fmllr}.sh, which set: verb, and name, where it is another; example, two directories; writes, the files; own, the names of their own options
# with defaults set, and own_usage, the lines on these.
name=${name:-${verb//-/_}.sh}

usage() {
  cat <<EOF
Usage: steps/$name [options] <data-dir> <lang-dir> <src-dir> <ali-dir>
 e.g.: steps/$name --nj 2 --boost-silence 1.25 data/train data/lang $example
Writes $writes, to <ali-dir>.
Options:
$(gmm_job_usage)
  --use-graphs true|false   # taken as Kaldi takes it, and changes nothing: trainings store no graphs, and alignment compiles the same
                            # ones again, in about a millisecond an utterance
  --beam <beam>             # of the alignment (10)
$(gmm_alignment_usage)
EOF
  [ -z "$own_usage" ] || printf '%s\n' "$own_usage"
}

nj=4 cmd=run.pl jobs=auto block_frames=0 keep_feats=auto device=cpu use_graphs=false beam=10 retry_beam=40 careful=false boost_silence=${boost_silence:-1.0} scale_opts=""
[ -f path.sh ] && . ./path.sh
. gmm_jobs.sh
. parse_options.sh || exit 1
if [ $# != 4 ]; then usage >&2; exit 1; fi
data=$1 lang=$2 src=$3 dir=$4
for f in "$data/feats.scp" "$data/text" "$lang/L.fst" "$src/final.mdl" "$src/tree"; do
  [ -f "$f" ] || { . missing.sh "$name" "$f"; exit 1; }
done
. fewer_jobs.sh
fewer_jobs "$data" utterances
options=()
for option in nj block_frames keep_feats device beam retry_beam careful boost_silence "${own[@]}"; do options+=("--${option//_/-}=${!option}"); done

gmm_jobs
$stage_cmd "$dir/log/align.log" pykaldist "$verb" "${options[@]}" $scale_opts ${basis_fmllr_opts:-} "$@" || exit 1
grep '^WARNING:' "$dir/log/align.log" | sed "s/^/$name: /" >&2
echo "$name: $(sed -n 's/^SUMMARY: //p' "$dir/log/align.log"); alignments in $dir"
