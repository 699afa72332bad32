#!/usr/bin/env bash
# Makes the denominator lattices of a subspace model (SGMM) system: decodes the training data with a unigram of its own words.

usage() {
  cat <<EOF
Usage: steps/make_denlats_sgmm2.sh [options] <data-dir> <lang-dir> <ali-dir> <denlats-dir>
 e.g.: steps/make_denlats_sgmm2.sh --nj 8 --transform-dir exp/tri3b data/train data/lang exp/sgmm2_4a_ali exp/sgmm2_4a_denlats
Writes lat.*.gz, lang/ (with the unigram) and dengraph/ to <denlats-dir>. Model and speakers' vectors are those of the alignment.
Run again after it was ended, it goes on at the next utterance of each job. Utterances that fail are left out, and listed in failed.
Options, Kaldi's with Kaldi's defaults:
  --transform-dir <dir>            # speakers' fMLLR transforms (trans.*), for a system that was trained with such
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
if [ -f "$3/final.alimdl" ] && [ ! -f "$3/vecs.1" ]; then
  echo "make_denlats_sgmm2.sh: ERROR: $3 has no vectors of speakers (vecs.1); give the directory of an alignment (steps/align_sgmm2.sh)." >&2
  exit 1
fi
vectors=() transforms=()
[ ! -f "$3/vecs.1" ] || vectors=(--spk-vecs "$3")
[ -z "$transform_dir" ] || transforms=(--transform-dir "$transform_dir")
. denominator_lattices.sh
denominator_lattices "$@" "${vectors[@]}" "${transforms[@]}" || exit 1
