#!/usr/bin/env bash
# Imports alignments that another system made: the alternative to training a GMM here.

usage() {
  cat <<EOF
Usage: steps/import_ali.sh [options] <source> <data-dir> <lang-dir> <exp-dir>
 e.g.: steps/import_ali.sh --nj 2 ../kaldi/exp/tri3_ali data/train data/lang exp/tri3_ali
       steps/import_ali.sh mfa_output data/train data/lang exp/mfa_ali
<source> is told apart by itself:
  a Kaldi alignment directory (ali.*.gz, final.mdl, tree; cmvn_opts, splice_opts, final.mat, trans.* come along)
  archives with the pdf or the phone of every frame, text or binary, gzipped or not: a file, or a directory of them
  a CTM of phones or words; a TextGrid or a directory of them (Montreal Forced Aligner)
  numpy labels, one a frame: a directory of <utterance>.npy, or an .npz
Writes the alignments and their model to <exp-dir>; provenance.json there has the report.
Options:
  --nj <n>                   # files of alignments (4)
  --cmd <command>            # how to run the job (run.pl)
  --max-unmatched <percent>  # utterances that may be left without an alignment (10)
  --labels auto|pdf|phone|word   # what labels are, where that cannot be told from them (auto)
  --model <dir>              # for pdfs: directory with the tree and final.mdl that they are of; decoding needs these
  --frame-shift <seconds>    # for times (0.01)
  --phones-tier, --words-tier <name>   # of TextGrids (phones, words)
EOF
}

nj=4 cmd=run.pl max_unmatched=10 labels=auto model="" frame_shift=0.01 phones_tier=phones words_tier=words
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 4 ]; then usage >&2; exit 1; fi
source=$1 data=$2 lang=$3 dir=$4
[ -e "$source" ] || { echo "import_ali.sh: ERROR: $source does not exist; give the alignments to import." >&2; exit 1; }
for f in "$data/feats.scp" "$lang/phones.txt" "$lang/topo"; do
  [ -f "$f" ] || { . missing.sh import_ali.sh "$f"; exit 1; }
done

$cmd "$dir/log/import_ali.log" pykaldist import-ali --nj "$nj" --max-unmatched "$max_unmatched" --labels "$labels" --model "$model" \
  --frame-shift "$frame_shift" --phones-tier "$phones_tier" --words-tier "$words_tier" "$source" "$data" "$lang" "$dir" || exit 1
grep '^WARNING:' "$dir/log/import_ali.log" | sed 's/^/import_ali.sh: /' >&2
echo "import_ali.sh: $(sed -n 's/^SUMMARY: //p' "$dir/log/import_ali.log"); alignments in $dir"
