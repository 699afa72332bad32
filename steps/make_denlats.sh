#!/usr/bin/env bash
# Makes the denominator lattices of discriminative training: decodes the training data with a GMM and a unigram of its own words.

usage() {
  cat <<EOF
Usage: steps/make_denlats.sh [options] <data-dir> <lang-dir> <src-dir> <denlats-dir>
 e.g.: steps/make_denlats.sh --nj 4 --transform-dir exp/tri3b_ali data/train data/lang exp/tri3b exp/tri3b_denlats
Writes lat.*.gz, lang/ (with the unigram) and dengraph/ to <denlats-dir>.
Run again after it was ended, it goes on at the next utterance of each job. Utterances that fail are left out, and listed in failed.
Options:
  --transform-dir <dir>            # speakers' fMLLR transforms (trans.*), which a speaker-adapted system needs
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
if [ -f "$3/final.alimdl" ] && [ -z "$transform_dir" ]; then
  echo "make_denlats.sh: ERROR: $3 is a speaker-adapted system; give --transform-dir, the directory of its alignment of this data." >&2
  exit 1
fi
. denominator_lattices.sh
denominator_lattices "$@" ${transform_dir:+--transform-dir "$transform_dir"} || exit 1
