# Sourced by steps/decode_{fmllr,basis_fmllr}.sh, which set: name; example, the arguments; transforms, what is estimated; own, the names of
# their own options with defaults set, and own_usage, the lines on these.
nj=4 cmd=run.pl stage=0 first_beam=10.0 first_max_active=2000 beam=13.0 lattice_beam=6.0 max_active=7000 min_active=200 acwt=0.083333
alignment_model="" adapt_model="" final_model="" silence_weight=0.01 si_dir="" num_threads=1 skip_scoring=false scoring_opts=""

usage() {
  cat <<EOF
Usage: steps/$name [options] <graph-dir> <data-dir> <decode-dir>
 e.g.: steps/$name --nj 4 $example
Decodes without adaptation, by final.alimdl, into <decode-dir>.si; estimates $transforms from these lattices; decodes with them;
estimates transforms again from the new lattices, and rescores these. Writes <decode-dir>/lat.JOB.gz and trans.JOB, then scores if
<data-dir> has text: by the recipe's local/score.sh, or where it has none by steps/score_kaldi.sh. The models are those in the parent of <decode-dir>.
Options:
  --nj <n>                     # jobs; no more than speakers (default $nj)
  --cmd <command>              # how to run them (default run.pl)
  --stage <n>                  # 1: first transforms, 2: decoding with them, 3: second transforms, 4: rescoring (default $stage)
  --first-beam <beam>          # of the decoding without adaptation (default $first_beam)
  --first-max-active <n>       # most states active in a frame of it (default $first_max_active)
  --beam <beam>                # of the decoding with adaptation (default $beam)
  --lattice-beam <beam>        # how much worse than the best path a lattice's may be (default $lattice_beam)
  --max-active <n>             # most states active in a frame (default $max_active)
  --min-active <n>             # fewest (default $min_active)
  --acwt <scale>               # of the log-likelihoods while decoding (default $acwt)
  --alignment-model <file>     # for the decoding without adaptation (final.alimdl; final.mdl where there is none)
  --adapt-model <file>         # for which transforms are made, and which decodes with them (final.mdl)
  --final-model <file>         # which rescores, with the same tree (final.mdl)
  --silence-weight <w>         # weight of silence in estimating transforms (default $silence_weight)
$own_usage
  --num-threads <n>            # of a job; they search over one graph in memory (1)
  --skip-scoring true|false    # lattices only (default $skip_scoring)
  --scoring-opts <options>     # for local/score.sh
  --si-dir <dir>               # lattices without adaptation that are there already, of as many jobs
EOF
}

[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 3 ]; then usage >&2; exit 1; fi
graph=$1 data=$2 dir=$3 src=$(dirname "$3")
. score_decoded.sh
. fewer_jobs.sh
. graph_fst.sh

[ -n "$alignment_model" ] || { alignment_model=$src/final.alimdl; [ -f "$alignment_model" ] || alignment_model=$src/final.mdl; }
[ -n "$adapt_model" ] || adapt_model=$src/final.mdl
[ -n "$final_model" ] || final_model=$src/final.mdl
for file in "$(graph_fst "$graph")" "$graph"/{words.txt,phones/silence.csl} "$data/feats.scp" "$alignment_model" "$adapt_model" "$final_model" \
  ${si_dir:+"$si_dir/lat.1.gz"} ${fmllr_basis:+"$src/$fmllr_basis"}; do
  [ -f "$file" ] || { . missing.sh "$name" "$file"; exit 1; }
done
fewer_jobs "$data" speakers
pass1=$dir.pass1  # the first transforms, and lattices of states
jobs=(--job JOB --nj "$nj" --acwt "$acwt")
search=(--lattice-beam "$lattice_beam" --min-active "$min_active" --num-threads "$num_threads")
threads=()
[ "$num_threads" = 1 ] || threads=(--num-threads "$num_threads")
estimate=(pykaldist est-fmllr "${jobs[@]}" --model "$adapt_model" --silence-weight "$silence_weight")
for option in "${own[@]}"; do estimate+=("--${option//_/-}=${!option}"); done
mkdir -p "$dir/log" && rm -f "$dir"/{lat.*.gz,wer_*,best_wer,dev_chosen_wer} || exit 1
echo "$nj" > "$dir/num_jobs" || exit 1

if [ -z "$si_dir" ]; then
  si_dir=$dir.si
  [ "$stage" -gt 0 ] || "$(dirname "$0")/decode.sh" --nj "$nj" --cmd "$cmd" --acwt "$acwt" "${search[@]}" --beam "$first_beam" \
    --max-active "$first_max_active" --skip-scoring "$skip_scoring" --scoring-opts "$scoring_opts" --model "$alignment_model" \
    "$graph" "$data" "$si_dir" || exit 1
fi
si_nj=$(cat "$si_dir/num_jobs") || exit 1
[ "$si_nj" = "$nj" ] || { echo "$name: ERROR: $si_dir has lattices of $si_nj jobs, not $nj; give --nj $si_nj." >&2; exit 1; }
if [ "$stage" -le 1 ]; then
  rm -rf "$pass1"
  $cmd JOB=1:"$nj" "$dir/log/fmllr_pass1.JOB.log" "${estimate[@]}" --aligner "$alignment_model" "$graph" "$data" "$src" "$si_dir" \
    "$pass1" || exit 1
fi
if [ "$stage" -le 2 ]; then
  $cmd "${threads[@]}" JOB=1:"$nj" "$dir/log/decode.JOB.log" pykaldist decode "${jobs[@]}" "${search[@]}" --beam "$beam" --max-active "$max_active" \
    --determinize-lattice false --model "$adapt_model" --transform-dir "$pass1" "$graph" "$data" "$pass1" || exit 1
fi
if [ "$stage" -le 3 ]; then
  rm -f "$dir"/trans.*
  $cmd JOB=1:"$nj" "$dir/log/fmllr_pass2.JOB.log" "${estimate[@]}" --start "$pass1" --determinize-beam 4 "$graph" "$data" "$src" "$pass1" \
    "$dir" || exit 1
fi
$cmd JOB=1:"$nj" "$dir/log/rescore.JOB.log" pykaldist rescore-lattices "${jobs[@]}" --lattice-beam "$lattice_beam" --model "$final_model" \
  --transform-dir "$dir" "$data" "$src" "$pass1" "$dir" || exit 1
rm -rf "$pass1"
if [ "$skip_scoring" = false ] && [ -f "$data/text" ]; then
  score_decoded --cmd "$cmd" $scoring_opts "$data" "$graph" "$dir" > /dev/null || exit 1
fi
best=""; [ ! -f "$dir/best_wer" ] || best="; $(cat "$dir/best_wer")"
echo "$name: lattices of $(wc -l < "$data/utt2spk") utterances and fMLLR transforms in $dir$best"
