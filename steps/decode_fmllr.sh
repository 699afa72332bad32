#!/usr/bin/env bash
# Decodes a data directory with a speaker-adapted GMM system, and scores the lattices.
nj=4
cmd=run.sh
first_beam=10.0
first_max_active=2000
beam=13.0
lattice_beam=6.0
max_active=7000
min_active=200
acwt=0.083333
silence_weight=0.01
fmllr_update_type=full
si_dir=
skip_scoring=false
scoring_opts=

usage() {
  cat <<EOF
Usage: steps/decode_fmllr.sh [options] <graph-dir> <data-dir> <decode-dir>
 e.g.: steps/decode_fmllr.sh --nj 4 exp/tri3/graph data/test exp/tri3/decode_test
Three passes: without adaptation, by final.alimdl, into <decode-dir>.si; with fMLLR transforms from these lattices; and with transforms
estimated again from the second pass's. Writes <decode-dir>/lat.JOB.gz and trans.JOB, then scores if <data-dir> has text.
The models are those in the parent of <decode-dir>.
Options:
  --nj <n>                     # jobs; no more than speakers (default $nj)
  --cmd <command>              # how to run them (default $cmd)
  --first-beam <beam>          # of the first pass (default $first_beam)
  --first-max-active <n>       # most states active in a frame of the first pass (default $first_max_active)
  --beam <beam>                # of the others (default $beam)
  --lattice-beam <beam>        # how much worse than the best path a lattice's may be (default $lattice_beam)
  --max-active <n>             # most states active in a frame (default $max_active)
  --min-active <n>             # fewest (default $min_active)
  --acwt <scale>               # of the log-likelihoods while decoding (default $acwt)
  --silence-weight <w>         # weight of silence in estimating transforms (default $silence_weight)
  --fmllr-update-type full|diag|offset|none   # what transforms may be (default $fmllr_update_type)
  --si-dir <dir>               # lattices of the first pass that are there already, of as many jobs
  --skip-scoring true|false    # lattices only (default $skip_scoring)
  --scoring-opts <options>     # for utils/score.sh
EOF
}

[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 3 ]; then usage >&2; exit 1; fi
graph=$1 data=$2 dir=$3 src=$(dirname "$3")

for file in "$graph"/{HCLG.fst,words.txt,phones/silence.csl} "$data/feats.scp" "$src/final.mdl" ${si_dir:+"$si_dir/lat.1.gz"}; do
  [ -f "$file" ] || { echo "decode_fmllr.sh: ERROR: $file does not exist." >&2; exit 1; }
done
speakers=$(cut -d ' ' -f 2 "$data/utt2spk" | sort -u | wc -l)
if [ "$nj" -gt "$speakers" ]; then
  echo "decode_fmllr.sh: $data has $speakers speakers, so there are $speakers jobs, not $nj"
  nj=$speakers
fi
aligner=$src/final.alimdl
[ -f "$aligner" ] || aligner=$src/final.mdl
pass2=$dir.pass2 decode=$(dirname "$0")/decode.sh
options=(--nj "$nj" --cmd "$cmd" --lattice-beam "$lattice_beam" --min-active "$min_active" --acwt "$acwt")
wide=("${options[@]}" --beam "$beam" --max-active "$max_active")
estimate=(pykaldist est-fmllr --job JOB --nj "$nj" --acwt "$acwt" --silence-weight "$silence_weight"
  --fmllr-update-type "$fmllr_update_type")
mkdir -p "$dir/log" && rm -rf "$dir"/{lat.*.gz,trans.*,wer_*,best_wer} "$pass2" || exit 1

if [ -z "$si_dir" ]; then
  si_dir=$dir.si
  "$decode" "${options[@]}" --beam "$first_beam" --max-active "$first_max_active" --skip-scoring "$skip_scoring" \
    --scoring-opts "$scoring_opts" --model "$aligner" "$graph" "$data" "$si_dir" || exit 1
fi
si_nj=$(cat "$si_dir/num_jobs")
[ "$si_nj" = "$nj" ] || { echo "decode_fmllr.sh: ERROR: $si_dir has lattices of $si_nj jobs, not $nj; give --nj $si_nj." >&2; exit 1; }
$cmd JOB=1:"$nj" "$dir/log/fmllr_pass1.JOB.log" "${estimate[@]}" --aligner "$aligner" "$graph" "$data" "$src" "$si_dir" "$pass2" || exit 1
"$decode" "${wide[@]}" --skip-scoring true --transform-dir "$pass2" "$graph" "$data" "$pass2" > /dev/null || exit 1
$cmd JOB=1:"$nj" "$dir/log/fmllr_pass2.JOB.log" "${estimate[@]}" --start "$pass2" "$graph" "$data" "$src" "$pass2" "$dir" || exit 1
rm -rf "$pass2"
"$decode" "${wide[@]}" --skip-scoring "$skip_scoring" --scoring-opts "$scoring_opts" --transform-dir "$dir" "$graph" "$data" "$dir" \
  > /dev/null || exit 1
best=""; [ ! -f "$dir/best_wer" ] || best="; $(cat "$dir/best_wer")"
echo "decode_fmllr.sh: lattices of $(wc -l < "$data/utt2spk") utterances and fMLLR transforms in $dir$best"
