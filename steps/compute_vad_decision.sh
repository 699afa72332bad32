#!/usr/bin/env bash
# Decides which frames of a data directory are speech, by their energy.

usage() {
  cat <<END
Usage: steps/compute_vad_decision.sh [options] <data> [<log-dir> [<vad-dir>]]
 e.g.: steps/compute_vad_decision.sh --nj 4 data/train exp/make_vad vad
Writes <data>/vad.scp; the archives go to <vad-dir>. (Default: <data>/log and <data>/data.)
Options:
  --vad-config <file>  # options of compute-vad (conf/vad.conf)
  --nj <n>             # jobs; no more than utterances (4)
  --cmd <command>      # how to run (run.pl)
END
}

cmd=run.pl nj=4 vad_config=conf/vad.conf
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# -lt 1 ] || [ $# -gt 3 ]; then usage >&2; exit 1; fi
data=$1 log_dir=${2:-$1/log} vad_dir=${3:-$1/data}
[ -f "$data/feats.scp" ] || { . missing.sh compute_vad_decision.sh "$data/feats.scp"; exit 1; }
[ -f "$vad_config" ] || { echo "compute_vad_decision.sh: ERROR: no file $vad_config; name it with --vad-config." >&2; exit 1; }

name=$(basename "$data")
mkdir -p "$vad_dir" "$log_dir" || exit 1
vad_dir=$(cd "$vad_dir" && pwd) || exit 1
. fewer_jobs.sh
fewer_jobs "$data" utterances
parts=() && for n in $(seq "$nj"); do parts+=("$log_dir/vad_$name.$n.feats.scp"); done
split_scp.pl "$data/feats.scp" "${parts[@]}" || exit 1
rm -f "$data/vad.scp"  # of features that may be older
$cmd JOB=1:"$nj" "$log_dir/vad_$name.JOB.log" compute-vad --config="$vad_config" "scp:$log_dir/vad_$name.JOB.feats.scp" \
  "ark,scp:$vad_dir/vad_$name.JOB.ark,$vad_dir/vad_$name.JOB.scp" || exit 1
for n in $(seq "$nj"); do cat "$vad_dir/vad_$name.$n.scp" || exit 1; done > "$data/vad.scp.new" || exit 1
mv "$data/vad.scp.new" "$data/vad.scp" || exit 1
echo "compute_vad_decision.sh: decisions for $(wc -l < "$data/vad.scp") of $(wc -l < "$data/feats.scp") utterances in $data/vad.scp"
