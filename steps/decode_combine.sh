#!/usr/bin/env bash
# Combines two decode directories: the paths that both lattices of an utterance have, at the weighted sums of their costs.
weight1=0.5
cmd=run.pl
skip_scoring=false
scoring_opts=

usage() {
  cat <<EOF
Usage: steps/decode_combine.sh [options] <data-dir> <lang-dir|graph-dir> <decode-dir1> <decode-dir2> <decode-dir-out>
 e.g.: steps/decode_combine.sh data/test data/lang exp/tri1/decode exp/tri2a/decode exp/combine_1_2a/decode
Both directories are of the same words. Alignments are the first's, and so is the number of jobs; where the two lattices of an utterance share
no path, the first stays as it is. Writes <decode-dir-out>/lat.JOB.gz, and scores them if <data-dir> has text.
Options:
  --weight1 <weight>         # of the first lattices' costs; the second ones have the rest of 1 (default $weight1)
  --cmd <command>            # how to run jobs (default run.pl)
  --skip-scoring true|false  # lattices only (default $skip_scoring)
  --scoring-opts <options>   # for local/score.sh
EOF
}

[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 5 ]; then usage >&2; exit 1; fi
data=$1 lang=$2 one=$3 two=$4 dir=$5
. score_decoded.sh

for file in "$data/utt2spk" "$lang/words.txt" "$one"/{num_jobs,lat.1.gz} "$two"/{num_jobs,lat.1.gz}; do
  [ -f "$file" ] || { . missing.sh decode_combine.sh "$file"; exit 1; }
done
nj=$(< "$one/num_jobs")
others=$two/lat.JOB.gz
[ "$nj" = "$(< "$two/num_jobs")" ] || others="$two/lat.*.gz"  # divided in another way: each job looks through all of them
mkdir -p "$dir/log" && rm -f "$dir"/{lat.*.gz,wer_*,best_wer,dev_chosen_wer} && echo "$nj" > "$dir/num_jobs" || exit 1
$cmd JOB=1:"$nj" "$dir/log/interp.JOB.log" lattice-interp --alpha="$weight1" "ark:$one/lat.JOB.gz" "ark:$others" ark:- \| \
  lattice-copy-backoff "ark:$one/lat.JOB.gz" ark:- "ark:$dir/lat.JOB.gz" || exit 1
if [ "$skip_scoring" = false ] && [ -f "$data/text" ]; then
  score_decoded --cmd "$cmd" $scoring_opts "$data" "$lang" "$dir" || exit 1
fi
echo "decode_combine.sh: lattices of $(wc -l < "$data/utt2spk") utterances in $dir"
