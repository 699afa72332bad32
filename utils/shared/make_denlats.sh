# Sourced by steps/make_denlats.sh and steps/make_denlats_sgmm2.sh, which set: source, what the third argument is; example, the arguments;
# whose, a sentence on the model or nothing; check, a function that refuses such a directory, or sets `own`, options of steps/decode.sh.
name=${0##*/}

usage() {
  cat <<EOF
Usage: steps/$name [options] <data-dir> <lang-dir> <$source> <denlats-dir>
 e.g.: steps/$name --nj 4 $example
Writes lat.*.gz, lang/ (with the unigram) and dengraph/ to <denlats-dir>.${whose:+ $whose}
Run again after it was ended, it goes on at the next utterance of each job. Utterances that fail are left out, and listed in failed.
Options:
  --transform-dir <dir>            # speakers' fMLLR transforms (trans.*), which a system that was trained with such needs
  --nj <n>                         # jobs (4)
  --cmd <command>                  # how to run them (run.pl)
  --acwt <scale>                   # of the log-likelihoods while decoding (0.1)
  --beam (13.0), --lattice-beam (7.0), --max-active (5000)
  --config <file>                  # options, one a line as name=value
  --sub-split, --max-mem, --num-threads, --parallel-opts <value>   # taken as Kaldi takes them, and change nothing
EOF
}

nj=4 cmd=run.pl acwt=0.1 beam=13.0 lattice_beam=7.0 max_active=5000 transform_dir=""
sub_split=1 max_mem="" num_threads=1 parallel_opts=""
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 4 ]; then usage >&2; exit 1; fi
own=()
check "$3"
[ -z "$transform_dir" ] || own+=(--transform-dir "$transform_dir")
. denominator_lattices.sh
denominator_lattices "$@" "${own[@]}" || exit 1
