#!/usr/bin/env bash
# Counts the pronunciations of words, and the silences around them, in alignments or lattices.
cmd=run.pl
stage=1
lmwt=10

usage() {
  cat <<EOF
Usage: steps/get_prons.sh [options] <data-dir> <lang-dir> <dir>
 e.g.: steps/get_prons.sh --cmd "\$train_cmd" data/train data/lang_nosp exp/tri3
       steps/get_prons.sh data/dev data/lang exp/tri3/decode_dev
<dir> has alignments (ali.*.gz) or, inside the model's directory, lattices (lat.*.gz). Writes <dir>/prons.*.gz, pron_counts.txt and, for
utils/dict_dir_add_pronprobs.sh, pron_counts_nowb.txt, sil_counts_nowb.txt and pron_bigram_counts_nowb.txt.
Options:
  --cmd <command>   # how to run jobs (default run.pl)
  --lmwt <weight>   # language model weight of the lattices' best paths (default $lmwt)
  --stage <n>       # above 1: prons.*.gz are there, and counted again (default $stage)
EOF
}

[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
[ $# = 3 ] || { usage >&2; exit 1; }
data=$1 lang=$2 dir=$3

for file in "$data/utt2spk" "$lang"/{words.txt,phones.txt,phones/align_lexicon.int} "$dir/num_jobs"; do
  [ -f "$file" ] || { . missing.sh get_prons.sh "$file"; exit 1; }
done
[ -f "$dir/ali.1.gz" ] || [ -f "$dir/lat.1.gz" ] || { echo "get_prons.sh: ERROR: $dir has neither ali.1.gz nor lat.1.gz; align first: steps/align_si.sh $data $lang ${dir%_ali} $dir" >&2; exit 1; }
if [ "$stage" -le 1 ]; then
  rm -f "$dir"/prons.*.gz || exit 1
  $cmd JOB=1:"$(< "$dir/num_jobs")" "$dir/log/get_prons.JOB.log" pykaldist get-prons --job JOB --lmwt "$lmwt" "$data" "$lang" "$dir" || exit 1
  grep -h '^WARNING:' "$dir"/log/get_prons.*.log | sed 's/^/get_prons.sh: /' >&2
fi
$cmd "$dir/log/count_prons.log" pykaldist get-prons "$data" "$lang" "$dir" || exit 1
echo "get_prons.sh: $(sed -n 's/^SUMMARY: //p' "$dir/log/count_prons.log"); counts in $dir/pron_counts.txt"
