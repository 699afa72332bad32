# Sourced by scripts that align transcripts; needs nj, cmd, data, lang, src and dir. `align_transcripts lattices|alignments <option>...` runs the
# jobs, and ends the script where one fails, or more than a tenth of the utterances have no path.
align_transcripts() {
  local name=${0##*/} what=$1 done
  shift
  [ "$what" = alignments ] || rm -f "$dir"/lat.*.gz || exit 1
  $cmd JOB=1:"$nj" "$dir/log/align_$what.JOB.log" pykaldist transcript-lattices --job JOB --nj "$nj" "$@" "$data" "$lang" "$src" "$dir" || exit 1
  echo "$nj" > "$dir/num_jobs" || exit 1
  grep -h '^WARNING:' "$dir"/log/align_"$what".*.log | head -5 | sed "s/^/$name: /" >&2
  done=$(sed -n 's/^SUMMARY: //p' "$dir"/log/align_"$what".*.log | awk '{ n += $1; of += $3 } END { print n, of }')
  if awk -v done="$done" 'BEGIN { split(done, n, " "); exit !(n[1] < 0.9 * n[2]) }'; then
    echo "$name: ERROR: only ${done% *} of ${done#* } transcripts have a path; do model, data and lang belong together? See $dir/log." >&2
    exit 1
  fi
  echo "$name: $what of ${done% *} of ${done#* } transcripts in $dir"
}

# `of_lattices <true|false>`: the value of --alignments for that of --generate-ali-from-lats.
of_lattices() { if [ "$1" = true ]; then echo too; else echo none; fi; }
