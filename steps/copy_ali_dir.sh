#!/usr/bin/env bash
# Gives copies of utterances, in other rooms or with noise, the alignments of their originals.

usage() {
  cat <<EOF
Usage: steps/copy_ali_dir.sh [options] <out-data> <src-ali-dir> <out-ali-dir>
 e.g.: steps/copy_ali_dir.sh --prefixes "aug" data/train_sp_all exp/tri3_ali_sp exp/tri3_ali_sp_all
The copies are those that utils/data/augment_data_dir.sh makes: as long as their originals, and named like them behind a prefix and "-".
Writes ali.*.gz, and copies of the model and the files about features, to <out-ali-dir>; transforms of speakers stay behind.
Options:
  --prefixes <prefixes>          # of the copies' names ("reverb1 babble music noise")
  --include-original true|false  # whether <out-data> has the originals, too (true)
  --nj <n>                       # files of alignments (4)
  --cmd <command>                # how to run the job (run.pl)
Taken, to no effect: --max-jobs-run (it is one job), --write-binary.
EOF
}

nj=4 cmd=run.pl prefixes="reverb1 babble music noise" include_original=true max_jobs_run=50 write_binary=true
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 3 ]; then usage >&2; exit 1; fi
data=$1 src=$2 dir=$3
for f in "$data/utt2spk" "$src/final.mdl"; do
  [ -f "$f" ] || { . missing.sh copy_ali_dir.sh "$f"; exit 1; }
done

$cmd "$dir/log/copy_ali.log" pykaldist copy-alignments --prefixes="$prefixes" --include-original="$include_original" --nj="$nj" "$@" ||
  exit 1
echo "copy_ali_dir.sh: $(sed -n 's/^SUMMARY: //p' "$dir/log/copy_ali.log") in $dir"
