#!/usr/bin/env bash
# Makes PLP features of a data directory, in jobs.

usage() {
  cat <<EOF
Usage: steps/make_plp.sh [options] <data> [<log-dir> [<plp-dir>]]
 e.g.: steps/make_plp.sh --nj 4 data/train exp/make_plp/train plp
Writes <data>/feats.scp, utt2num_frames and utt2dur; the archives go to <plp-dir>. (Default: <data>/log and <data>/data.)
Up to 1 % of the utterances may be unusable: they are left out and named.
Options:
  --plp-config <file>     # Kaldi's options, one --option=value a line (conf/plp.conf)
  --nj <n>                # jobs (2)
  --cmd <command>         # how to run them (run.sh)
  --channel <n>           # channel to read, from 0; -1 expects mono (-1)
  --compress true|false   # one byte a value (false)
  --seed <n>              # of the dither (0)
EOF
}

plp_config=conf/plp.conf nj=2 cmd=run.sh channel=-1 compress=false seed=0
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# -lt 1 ] || [ $# -gt 3 ]; then usage >&2; exit 1; fi
data=$1 log_dir=${2:-$1/log} plp_dir=${3:-$1/data}
[ -f "$plp_config" ] || { echo "make_plp.sh: ERROR: no config $plp_config; write one, or give --plp-config." >&2; exit 1; }
validate_data_dir.sh --no-text --no-feats "$data" > /dev/null || exit 1

rm -f "$data"/{feats.scp,cmvn.scp,utt2num_frames,utt2dur}  # of features that are about to be replaced
$cmd JOB=1:"$nj" "$log_dir/make_plp.JOB.log" pykaldist make-feats --kind plp --feats-config "$plp_config" --job JOB --nj "$nj" \
  --channel "$channel" --compress "$compress" --seed "$seed" "$data" "$plp_dir" || exit 1
made=$(pykaldist collect-feats --kind plp --nj "$nj" "$data" "$plp_dir") || exit 1
echo "make_plp.sh: $made"
