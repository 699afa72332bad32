#!/usr/bin/env bash
# Decodes a data directory with a network, with Kaldi's options of this script; steps/decode.sh does it, and decodes with any model.

usage() {
  cat <<EOF
Usage: steps/nnet/decode.sh [options] <graph-dir> <data-dir> <decode-dir>
 e.g.: steps/nnet/decode.sh --nj 4 --config conf/decode_dnn.config --acwt 0.1 exp/tri3/graph data-fbank/test exp/dnn/decode
The network is that of the parent of <decode-dir>, as steps/nnet/train.sh or Kaldi left it. Writes lattices, and scores them.
Options:
  --nj <n>, --cmd <command>                # jobs (4), and how to run them (run.pl)
  --config <file>                          # options, one a line as name=value
  --acwt <scale>                           # of the log-likelihoods while decoding (0.1)
  --beam (13.0), --lattice-beam (8.0), --max-active (7000), --min-active (200)
  --nnet <file>, --feature-transform <file>, --class-frame-counts <file>, --model <file>   # in place of the directory's own
  --srcdir <dir>                           # directory of the network, in place of the parent of <decode-dir>
  --skip-scoring true|false                # lattices only (false)
  --scoring-opts <options>                 # ("--min-lmwt 4 --max-lmwt 15")
  --device <name>, or --use-gpu yes|no|optional   # where the network computes (cpu)
  --forward-opts <options>                 # how utterances go through a network: "--dtype bf16"
  --stage <n>                              # above 0: the lattices are there, and scored again
  --num-threads <n>                        # of a job; they search over one graph in memory (1)
  --max-mem, --parallel-opts <value>       # taken as Kaldi takes them, and change nothing
Not here: --ivector, --blocksoftmax-dims, --blocksoftmax-active.
EOF
}

nj=4 cmd=run.pl acwt=0.1 beam=13.0 lattice_beam=8.0 max_active=7000 min_active=200 stage=0
nnet="" feature_transform="" class_frame_counts="" model="" srcdir="" skip_scoring=false scoring_opts="--min-lmwt 4 --max-lmwt 15"
device=cpu use_gpu=no forward_opts="" nnet_forward_opts="--no-softmax=true --prior-scale=1.0"
ivector="" blocksoftmax_dims="" blocksoftmax_active="" num_threads=1 max_mem="" parallel_opts=""
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 3 ]; then usage >&2; exit 1; fi
. nnet1_options.sh
[ -z "$blocksoftmax_dims$blocksoftmax_active" ] || refuse --blocksoftmax-dims "networks have one softmax"

options=()
for option in nj cmd acwt beam lattice_beam max_active min_active stage nnet feature_transform class_frame_counts model srcdir \
  skip_scoring scoring_opts device forward_opts num_threads; do
  [ -z "${!option}" ] || options+=("--${option//_/-}" "${!option}")
done
exec "$(dirname "${BASH_SOURCE[0]}")/../decode.sh" "${options[@]}" "$@"
