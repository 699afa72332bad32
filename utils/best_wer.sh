#!/usr/bin/env bash
# The best of the %WER lines on standard input, the first of equals, with its file's name last.
usage() {
  cat <<EOF
Usage: grep WER exp/mono/decode/wer_* | utils/best_wer.sh
 e.g.: for d in exp/*/decode*; do grep WER \$d/wer_* | utils/best_wer.sh; done
EOF
}
case "${1:-}" in --help | -h) usage; exit 0 ;; esac
if [ $# != 0 ] || [ -t 0 ]; then usage >&2; exit 1; fi
awk '{
  at = index($0, "%WER"); if (!at) next
  split(substr($0, at), field, " "); file = substr($0, 1, at - 1); sub(/:$/, "", file)
  if (!seen || field[2] + 0 < best) { seen = 1; best = field[2] + 0; line = substr($0, at) (file == "" ? "" : " " file) }
} END { if (!seen) { print "best_wer.sh: ERROR: no %WER line on standard input." > "/dev/stderr"; exit 1 } print line }'
