#!/usr/bin/env bash
# Aligns a data directory with a speaker-adapted GMM system, and estimates fMLLR transforms of its speakers.

usage() {
  cat <<EOF
Usage: steps/align_fmllr.sh [options] <data-dir> <lang-dir> <src-dir> <ali-dir>
 e.g.: steps/align_fmllr.sh --nj 2 --boost-silence 1.25 data/train data/lang exp/tri3 exp/tri3_ali
Writes the alignments ali.*.gz, the transforms trans.*, and copies of the models and their tree, to <ali-dir>.
Options:
  --nj <n>                  # threads, and files of alignments and transforms; nothing else depends on it (4)
  --cmd <command>           # how to run the job (run.sh)
  --beam <beam>             # of the alignment (10)
  --retry-beam <beam>       # where an utterance does not reach its end (40)
  --boost-silence <factor>  # on the likelihoods of silence (1.0)
  --fmllr-update-type full|diag|offset|none   # what transforms may be (full)
  --silence-weight <w>      # weight of silence in their estimation (0.0)
EOF
}

nj=4 cmd=run.sh beam=10 retry_beam=40 boost_silence=1.0
fmllr_update_type=full silence_weight=0.0
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 4 ]; then usage >&2; exit 1; fi
data=$1 lang=$2 src=$3 dir=$4
for f in "$data/feats.scp" "$data/text" "$lang/L.fst" "$src/final.mdl" "$src/tree"; do
  [ -f "$f" ] || { echo "align_fmllr.sh: ERROR: $f does not exist; run the stage that makes it." >&2; exit 1; }
done

$cmd "$dir/log/align.log" pykaldist align-fmllr --nj "$nj" --beam "$beam" --retry-beam "$retry_beam" \
  --boost-silence "$boost_silence" --fmllr-update-type "$fmllr_update_type" --silence-weight "$silence_weight" \
  "$data" "$lang" "$src" "$dir" || exit 1
grep '^WARNING:' "$dir/log/align.log" | sed 's/^/align_fmllr.sh: /' >&2
echo "align_fmllr.sh: $(sed -n 's/^SUMMARY: //p' "$dir/log/align.log"); alignments in $dir"
