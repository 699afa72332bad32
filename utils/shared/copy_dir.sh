# Sourced by steps/copy_*_dir.sh, which say what they copy: kind=ali, lat; what=alignments, lattices; and form, Kaldi's option on how they are
# written, which has no effect here.
name=copy_${kind}_dir

usage() {
  cat <<EOF
Usage: steps/$name.sh [options] <out-data> <src-$kind-dir> <out-$kind-dir>
 e.g.: steps/$name.sh --prefixes "aug" data/train_sp_all exp/tri3_${kind}_sp exp/tri3_${kind}_sp_all
The copies are those that utils/data/augment_data_dir.sh makes: as long as their originals, and named like them behind a prefix and "-".
Writes $kind.*.gz, and copies of the model and the files about features, to <out-$kind-dir>; transforms of speakers stay behind.
Options:
  --prefixes <prefixes>          # of the copies' names ("reverb1 babble music noise")
  --include-original true|false  # whether <out-data> has the originals, too (true)
  --nj <n>                       # files of $what (4)
  --cmd <command>                # how to run the job (run.pl)
Taken, to no effect: --max-jobs-run (it is one job), --${form//_/-}.
EOF
}

nj=4 cmd=run.pl prefixes="reverb1 babble music noise" include_original=true max_jobs_run=50
printf -v "$form" true
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 3 ]; then usage >&2; exit 1; fi
for f in "$1/utt2spk" "$2/final.mdl"; do
  [ -f "$f" ] || { . missing.sh $name.sh "$f"; exit 1; }
done

lattices=""
[ "$kind" = ali ] || lattices=--lattices
$cmd "$3/log/copy_$kind.log" pykaldist copy-alignments $lattices --prefixes="$prefixes" --include-original="$include_original" --nj="$nj" "$@" || exit 1
echo "$name.sh: $(sed -n 's/^SUMMARY: //p' "$3/log/copy_$kind.log") in $3"
