#!/usr/bin/env bash
# Decodes a data directory with an nnet3 network chunk by chunk, as if the audio still came, with Kaldi's options of this script.

usage() {
  cat <<EOF
Usage: steps/nnet3/decode_looped.sh [options] <graph-dir> <data-dir> <decode-dir>
 e.g.: steps/nnet3/decode_looped.sh --acwt 1.0 --post-decode-acwt 10.0 exp/chain/tdnn/graph data/test_hires exp/chain/tdnn/decode_looped
Each layer computes a frame once, when what it needs has come; the outputs are those of the whole utterance. For TDNNs,
attention, and LSTMs that run forwards, whose state is carried on. Utterances go through a network that runs backwards as a whole; one that takes
i-vectors, too, is refused.
Options:
  --frames-per-chunk <n>                   # frames of features for a chunk ($frames_per_chunk)
  --online-ivector-dir <dir>               # i-vectors of the data, of a network that takes them; a chunk has that of its last frame
  --nj ($nj), --cmd ($cmd), --config <file>, --acwt ($acwt), --post-decode-acwt ($post_decode_acwt), --beam ($beam),
  --lattice-beam ($lattice_beam), --max-active ($max_active), --min-active ($min_active), --iter ($iter), --skip-scoring ($skip_scoring),
  --scoring-opts, --stage                  # as of steps/nnet3/decode.sh
  --extra-left-context-initial, --minimize, --skip-diagnostics, --batch-am-decoder   # taken, and change nothing
EOF
}

nj=4 cmd=run.pl acwt=0.1 post_decode_acwt=1.0 beam=15.0 lattice_beam=8.0 max_active=7000 min_active=200 iter=final stage=1
skip_scoring=false scoring_opts="" online_ivector_dir="" frames_per_chunk=50 extra_left_context_initial=0 minimize=false
skip_diagnostics=false ivector_scale=1.0 batch_am_decoder=false
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 3 ]; then usage >&2; exit 1; fi
if [ "$ivector_scale" != 1.0 ]; then
  echo "decode_looped.sh: ERROR: --ivector-scale $ivector_scale: i-vectors are not scaled here; scale them when they are extracted." >&2
  exit 1
fi
[ "$stage" -gt 1 ] || stage=0

options=(--device cpu --forward-opts "--forward looped")
for option in nj cmd acwt post_decode_acwt beam lattice_beam max_active min_active iter stage skip_scoring scoring_opts \
  online_ivector_dir frames_per_chunk; do
  [ -z "${!option}" ] || options+=("--${option//_/-}" "${!option}")
done
exec "$(dirname "${BASH_SOURCE[0]}")/../decode.sh" "${options[@]}" "$@"
