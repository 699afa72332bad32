#!/usr/bin/env bash
# Aligns a data directory with a speaker-independent GMM system.

usage() {
  cat <<EOF
Usage: steps/align_si.sh [options] <data-dir> <lang-dir> <src-dir> <ali-dir>
 e.g.: steps/align_si.sh --nj 2 --boost-silence 1.25 data/train data/lang exp/mono exp/mono_ali
Writes the alignments ali.*.gz, and copies of the model and its tree, to <ali-dir>.
Options:
  --nj <n>                  # threads, and files of alignments; nothing else depends on it (4)
  --cmd <command>           # how to run the job (run.sh)
  --beam <beam>             # of the alignment (10)
  --retry-beam <beam>       # where an utterance does not reach its end (40)
  --boost-silence <factor>  # on the likelihoods of silence (1.0)
EOF
}

nj=4 cmd=run.sh beam=10 retry_beam=40 boost_silence=1.0
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 4 ]; then usage >&2; exit 1; fi
data=$1 lang=$2 src=$3 dir=$4
for f in "$data/feats.scp" "$data/text" "$lang/L.fst" "$src/final.mdl" "$src/tree"; do
  [ -f "$f" ] || { echo "align_si.sh: ERROR: $f does not exist; run the stage that makes it." >&2; exit 1; }
done

$cmd "$dir/log/align.log" pykaldist align-si --nj "$nj" --beam "$beam" --retry-beam "$retry_beam" \
  --boost-silence "$boost_silence" "$data" "$lang" "$src" "$dir" || exit 1
grep '^WARNING:' "$dir/log/align.log" | sed 's/^/align_si.sh: /' >&2
echo "align_si.sh: $(sed -n 's/^SUMMARY: //p' "$dir/log/align.log"); alignments in $dir"
