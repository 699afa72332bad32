# Sourced by scripts whose jobs share a data directory out. `fewer_jobs <data-dir> utterances|speakers`: where there are fewer of these than
# jobs, sets nj to their number, and says so.
fewer_jobs() {
  local count
  [ -f "$1/utt2spk" ] || return 0
  case $2 in speakers) count=$(awk '{ print $2 }' "$1/utt2spk" | sort -u | wc -l) ;; *) count=$(wc -l < "$1/utt2spk") ;; esac
  [ "$nj" -le "$count" ] || { echo "${0##*/}: $1 has $count $2, so there are $count jobs, not $nj"; nj=$count; }
}
