#!/usr/bin/env bash
# Makes the denominator lattices of sequence training: decodes the training data with a network and a unigram of its own words.

usage() {
  cat <<EOF
Usage: steps/nnet/make_denlats.sh [options] <data-dir> <lang-dir> <src-dir> <denlats-dir>
 e.g.: steps/nnet/make_denlats.sh --nj 4 --acwt 0.1 data-fbank/train data/lang exp/dnn exp/dnn_denlats
<src-dir> is one of steps/nnet/train.sh, or Kaldi's. Writes lat.*.gz, lang/ (with the unigram) and dengraph/ to <denlats-dir>.
Run again after it was ended, it goes on at the next utterance of each job. Utterances that fail are left out, and listed in failed.
Options:
  --nj <n>                         # jobs (4)
  --cmd <command>                  # how to run them (run.pl)
  --acwt <scale>                   # of the log-likelihoods while decoding (0.1)
  --beam (13.0), --lattice-beam (7.0), --max-active (5000)
  --nnet <file>                    # in place of the directory's own
  --config <file>                  # options, one a line as name=value
  --device <name>, or --use-gpu yes|no|optional   # where the network computes (cpu)
  --forward-opts <options>         # how utterances go through it: "--dtype bf16"; those of steps/decode.sh
  --sub-split, --max-mem, --num-threads, --parallel-opts <value>   # taken as Kaldi takes them, and change nothing
Not here: --ivector.
EOF
}

nj=4 cmd=run.pl acwt=0.1 beam=13.0 lattice_beam=7.0 max_active=5000 nnet="" device=cpu use_gpu=no ivector=""
forward_opts="" nnet_forward_opts="--no-softmax=true --prior-scale=1.0" sub_split=1 max_mem="" num_threads=1 parallel_opts=""
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 4 ]; then usage >&2; exit 1; fi
. nnet1_options.sh
. denominator_lattices.sh
denominator_lattices "$@" --device "$device" ${forward_opts:+--forward-opts "$forward_opts"} ${nnet:+--nnet "$nnet"} || exit 1
