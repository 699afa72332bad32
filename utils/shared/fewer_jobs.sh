# Sourced by scripts whose jobs share a data directory out. `fewer_jobs <data-dir> utterances|speakers`: where there are fewer of these than
# jobs, sets nj to their number, and says so. Ends the script where there are none.
fewer_jobs() {
  local count
  [ -f "$1/utt2spk" ] || return 0
  case $2 in
    speakers) count=$(set -o pipefail; awk '{ print $2 }' "$1/utt2spk" | sort -u | wc -l) ;;
    *) count=$(wc -l < "$1/utt2spk") ;;
  esac || { echo "${0##*/}: ERROR: the $2 of $1/utt2spk were not counted; run the same command again." >&2; exit 1; }
  [ "$count" -gt 0 ] || { echo "${0##*/}: ERROR: $1/utt2spk has no $2." >&2; exit 1; }
  [ "$nj" -le "$count" ] || { echo "${0##*/}: $1 has $count $2, so there are $count jobs, not $nj"; nj=$count; }
}
