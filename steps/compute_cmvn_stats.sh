#!/usr/bin/env bash
# Computes each speaker's statistics for cepstral mean and variance normalisation.

usage() {
  cat <<EOF
Usage: steps/compute_cmvn_stats.sh [options] <data> [<log-dir> [<cmvn-dir>]]
 e.g.: steps/compute_cmvn_stats.sh data/train exp/make_mfcc/train mfcc
Writes <data>/cmvn.scp; the archive goes to <cmvn-dir>. (Default: <data>/log and <data>/data.)
Options:
  --fake                  # statistics that change nothing
  --fake-dims <n>:<n>...  # statistics that change nothing in these dimensions, from 0
  --cmd <command>         # how to run (run.pl)
EOF
}

cmd=run.pl fake_dims="" no_change=""
if [ "${1:-}" = --fake ]; then no_change=true; shift; fi
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# -lt 1 ] || [ $# -gt 3 ]; then usage >&2; exit 1; fi
data=$1 log_dir=${2:-$1/log} cmvn_dir=${3:-$1/data}
for f in "$data/feats.scp" "$data/utt2spk"; do
  [ -f "$f" ] || { . missing.sh compute_cmvn_stats.sh "$f"; exit 1; }
done

log=$log_dir/cmvn_$(basename "$data").log
$cmd "$log" pykaldist make-cmvn ${no_change:+--fake} ${fake_dims:+--fake-dims "$fake_dims"} "$data" "$cmvn_dir" || exit 1
echo "compute_cmvn_stats.sh: $(grep '^CMVN' "$log")"
