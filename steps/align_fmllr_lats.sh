#!/usr/bin/env bash
# Aligns a data directory with a speaker-adapted GMM system into lattices, which hold alternative pronunciations of the transcripts.

usage() {
  cat <<EOF
Usage: steps/align_fmllr_lats.sh [options] <data-dir> <lang-dir> <src-dir> <lat-dir>
 e.g.: steps/align_fmllr_lats.sh --nj 4 --cmd "\$train_cmd" data/train data/lang exp/tri3 exp/tri3_lats
Writes lat.*.gz, the transforms trans.*, the alignments ali.*.gz, and copies of the models and their tree, to <lat-dir>. Chain training makes
its numerators of the lattices (steps/nnet3/chain/train.py --lat-dir). Graphs are not kept: fsts.*.gz are empty, for recipes that remove them.
Options:
  --nj <n>                  # jobs, no more than utterances (4)
  --cmd <command>           # how to run them (run.pl)
  --scale-opts <options>    # of the graphs ("--transition-scale=1.0 --self-loop-scale=0.1")
  --acoustic-scale <scale>  # of the log-likelihoods (0.1)
  --beam <beam>, --retry-beam <beam>   # of the alignment that transforms are made of, and of its second try (10, 40)
  --final-beam <beam>       # of the lattices (20)
  --max-active <n>          # most states active in a frame of theirs (7000)
  --boost-silence <factor>  # on the likelihoods of silence (1.0)
  --fmllr-update-type full|diag|offset|none   # what transforms may be (full)
  --generate-ali-from-lats true|false  # ali.*.gz are the best paths of the lattices, not the alignment with --beam (false)
  --stage <n>               # above 2: the transforms are there (0)
EOF
}

nj=4 cmd=run.pl stage=0 scale_opts="--transition-scale=1.0 --self-loop-scale=0.1" acoustic_scale=0.1 beam=10 retry_beam=40 final_beam=20
max_active=7000 boost_silence=1.0 fmllr_update_type=full generate_ali_from_lats=false
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 4 ]; then usage >&2; exit 1; fi
data=$1 lang=$2 src=$3 dir=$4
for f in "$data/feats.scp" "$data/text" "$lang/L.fst" "$src/final.mdl" "$src/tree"; do
  [ -f "$f" ] || { . missing.sh align_fmllr_lats.sh "$f"; exit 1; }
done
. fewer_jobs.sh
. transcript_lattices.sh
fewer_jobs "$data" utterances

if [ "$stage" -le 2 ]; then
  $cmd "$dir/log/align.log" pykaldist align-fmllr --nj="$nj" --beam="$beam" --retry-beam="$retry_beam" --boost-silence="$boost_silence" \
    --fmllr-update-type="$fmllr_update_type" --acoustic-scale="$acoustic_scale" $scale_opts "$@" || exit 1
  grep '^WARNING:' "$dir/log/align.log" | sed "s/^/align_fmllr_lats.sh: /" >&2
fi
rm -f "$dir"/fsts.*.gz || exit 1
for ((job = 1; job <= nj; job++)); do gzip -c < /dev/null > "$dir/fsts.$job.gz" || exit 1; done
align_transcripts lattices --transform-dir "$dir" --beam="$final_beam" --max-active="$max_active" --boost-silence="$boost_silence" \
  --acoustic-scale="$acoustic_scale" --alignments "$(of_lattices "$generate_ali_from_lats")" $scale_opts
