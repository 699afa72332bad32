#!/usr/bin/env bash
# Decodes a data directory with an nnet3 network, such as a chain model, with Kaldi's options of this script; steps/decode.sh does it.

usage() {
  cat <<EOF
Usage: steps/nnet3/decode.sh [options] <graph-dir> <data-dir> <decode-dir>
 e.g.: steps/nnet3/decode.sh --acwt 1.0 --post-decode-acwt 10.0 --nj 4 exp/chain/tdnn/graph data/test_hires exp/chain/tdnn/decode_test
The model is final.mdl in the parent of <decode-dir>, with cmvn_opts (none: no CMVN) and frame_subsampling_factor (none: 1) beside it.
Writes lattices, and scores them.
Options:
  --nj <n>, --cmd <command>                # jobs (4), and how to run them (run.pl)
  --config <file>                          # options, one a line as name=value
  --acwt <scale>                           # of the log-likelihoods while decoding (0.1; chain models: 1.0)
  --post-decode-acwt <scale>               # of the lattices' acoustic costs (1.0; chain models: 10.0, so that scoring finds its scales)
  --beam (15.0), --lattice-beam (8.0), --max-active (7000), --min-active (200)
  --iter <iteration>                       # <iteration>.mdl in place of final.mdl
  --skip-scoring true|false                # lattices only (false)
  --scoring-opts <options>                 # for local/score.sh
  --use-gpu true|false                     # the network computes on a GPU (false)
  --stage <n>                              # above 1: the lattices are there, and scored again
  --online-ivector-dir <dir>               # i-vectors of <data-dir> (extract_ivectors_online.sh), for a network that takes them
  --lookahead true|false                   # compose HCLr.fst and Gr.fst of <graph-dir> while decoding, although it has HCLG.fst (false)
  --frames-per-chunk <n>                   # frames of features that share an i-vector, or that a recurrent network begins anew with
                                           # ($frames_per_chunk); others without i-vectors see an utterance as a whole
  --extra-left-context <n>, --extra-right-context <n>   # frames more that a recurrent network goes through around a chunk (0)
  --extra-left-context-initial <n>, --extra-right-context-final <n>   # the same around an utterance's ends (-1: as elsewhere)
  --num-threads <n>                        # of a job; they search over one graph in memory (1)
  --queue-opt, --minimize, --skip-diagnostics <value>   # taken, and change nothing
EOF
}

nj=4 cmd=run.pl acwt=0.1 post_decode_acwt=1.0 beam=15.0 lattice_beam=8.0 max_active=7000 min_active=200 iter=final stage=1
skip_scoring=false scoring_opts="" use_gpu=false online_ivector_dir="" num_threads=1 queue_opt="" frames_per_chunk=50 extra_left_context=0
extra_right_context=0 extra_left_context_initial=-1 extra_right_context_final=-1 minimize=false skip_diagnostics=false ivector_scale=1.0
lookahead=false
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 3 ]; then usage >&2; exit 1; fi
if [ "$ivector_scale" != 1.0 ]; then
  echo "decode.sh: ERROR: --ivector-scale $ivector_scale: i-vectors are not scaled here; scale them when they are extracted." >&2
  exit 1
fi
case $use_gpu in
  true) device=cuda ;;
  false) device=cpu ;;
  *) echo "decode.sh: ERROR: --use-gpu $use_gpu: expected true or false." >&2; exit 1 ;;
esac
[ "$stage" -gt 1 ] || stage=0

options=()
for option in nj cmd acwt post_decode_acwt beam lattice_beam max_active min_active iter stage skip_scoring scoring_opts device \
  online_ivector_dir frames_per_chunk extra_left_context extra_right_context extra_left_context_initial extra_right_context_final lookahead \
  num_threads; do
  [ -z "${!option}" ] || options+=("--${option//_/-}" "${!option}")
done
exec "$(dirname "${BASH_SOURCE[0]}")/../decode.sh" "${options[@]}" "$@"
