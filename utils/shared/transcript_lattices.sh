# Sourced by scripts that make lattices of transcripts; needs nj, cmd, data, lang, src and dir. `transcript_lattices <option>...` runs the
# jobs, and ends the script where one fails, or more than a tenth of the utterances have no lattice.
transcript_lattices() {
  local name=${0##*/} done
  rm -f "$dir"/lat.*.gz || exit 1
  $cmd JOB=1:"$nj" "$dir/log/generate_lattices.JOB.log" pykaldist transcript-lattices --job JOB --nj "$nj" "$@" "$data" "$lang" "$src" "$dir" ||
    exit 1
  echo "$nj" > "$dir/num_jobs" || exit 1
  grep -h '^WARNING:' "$dir"/log/generate_lattices.*.log | head -5 | sed "s/^/$name: /" >&2
  done=$(sed -n 's/^SUMMARY: //p' "$dir"/log/generate_lattices.*.log | awk '{ n += $1; of += $3 } END { print n, of }')
  if awk -v done="$done" 'BEGIN { split(done, n, " "); exit !(n[1] < 0.9 * n[2]) }'; then
    echo "$name: ERROR: only ${done% *} of ${done#* } transcripts have a path; do model, data and lang belong together? See $dir/log." >&2
    exit 1
  fi
  echo "$name: lattices of ${done% *} of ${done#* } transcripts in $dir"
}
