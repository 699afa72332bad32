# Sourced by steps/lmrescore.sh and steps/lmrescore_const_arpa.sh, whose options are read: the jobs, and scoring.
# $lm_file: what the new language directory has to have; $lm_opts: of `pykaldist lmrescore`.
old=$1 new=$2 data=$3 from=$4 dir=$5
. score_decoded.sh

for file in "$old"/{G.fst,words.txt} "$new"/{"$lm_file",words.txt} "$from"/{num_jobs,lat.1.gz}; do
  [ -f "$file" ] || { . missing.sh "${0##*/}" "$file"; exit 1; }
done
[ ! "$from" -ef "$dir" ] || { echo "${0##*/}: ERROR: <input-decode-dir> and <output-decode-dir> are the same; give another." >&2; exit 1; }
nj=$(< "$from/num_jobs")
if [ "${stage:-1}" -le 1 ]; then
  mkdir -p "$dir/log" && rm -f "$dir"/{lat.*.gz,wer_*,best_wer,dev_chosen_wer} && echo "$nj" > "$dir/num_jobs" || exit 1
  $cmd JOB=1:"$nj" "$dir/log/rescorelm.JOB.log" pykaldist lmrescore --job JOB $lm_opts "$old" "$new" "$from" "$dir" || exit 1
fi
if [ "$skip_scoring" = false ] && [ -f "$data/text" ]; then
  score_decoded --cmd "$cmd" $scoring_opts "$data" "$new" "$dir" || exit 1
fi
echo "${0##*/}: lattices in $dir"
