#!/usr/bin/env bash
# The best of the %WER lines (or sclite's Sum/Avg lines) on standard input, the first of equals, with its file's name last.
usage() {
  cat <<EOF
Usage: grep WER exp/mono/decode/wer_* | utils/best_wer.sh
 e.g.: for d in exp/*/decode*; do grep WER \$d/wer_* | utils/best_wer.sh; done
EOF
}
case "${1:-}" in --help | -h) usage; exit 0 ;; esac
if [ $# != 0 ] || [ -t 0 ]; then usage >&2; exit 1; fi
awk '{
  if (at = index($0, "%WER")) {
    split(substr($0, at), field, " "); wer = field[2]; rest = substr($0, at)
  } else if (at = match($0, /\| *Sum\/Avg *\|/)) {  # | Sum/Avg | sentences words | correct substituted deleted inserted ERRORS sentences |
    split(substr($0, at), column, "|"); split(column[4], field, " "); wer = field[5]; rest = "%WER " wer " " substr($0, at)
  } else next
  file = substr($0, 1, at - 1); sub(/: *$/, "", file)
  if (!seen || wer + 0 < best) { seen = 1; best = wer + 0; line = rest (file == "" ? "" : " " file) }
} END { if (!seen) { print "best_wer.sh: ERROR: no %WER or Sum/Avg line on standard input." > "/dev/stderr"; exit 1 } print line }'
