#!/usr/bin/env bash
# Decodes a data directory with an fMMI system: a GMM, and offsets of its features.

usage() {
  cat <<EOF
Usage: steps/decode_fmmi.sh [options] <graph-dir> <data-dir> <decode-dir>
 e.g.: steps/decode_fmmi.sh --nj 4 --iter 8 --transform-dir exp/tri3b/decode exp/tri3b/graph data/test exp/tri3b_fmmi/decode_it8
The model and the offsets are <iteration>.mdl and <iteration>.fmpe in the parent of <decode-dir>. The rest is as in steps/decode.sh.
Options:
  --iter <iteration>           # of training (final)
  --ngselect <n>               # Gaussians of the UBM in a frame, as in training (2)
  --transform-dir <dir>        # speakers' fMLLR transforms (trans.*), for a system that was trained with such
  --nj (4), --cmd (run.pl), --beam (13.0), --lattice-beam (6.0), --max-active (7000), --acwt (0.083333), --config,
  --skip-scoring (false), --scoring-opts, --stage, --num-threads   # as in steps/decode.sh
EOF
}

iter=final ngselect=2 transform_dir="" nj=4 cmd=run.pl beam=13.0 lattice_beam=6.0 max_active=7000 maxactive="" acwt=0.083333
skip_scoring=false scoring_opts="" stage=1 num_threads=1 scored=""
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 3 ]; then usage >&2; exit 1; fi
src=$(dirname "$3")
for file in "$src/$iter".{mdl,fmpe}; do
  [ -f "$file" ] || { echo "decode_fmmi.sh: ERROR: $file does not exist; train it: steps/train_mmi_fmmi.sh data/train data/lang exp/tri3b_ali exp/dubm3b exp/tri3b_denlats $src" >&2; exit 1; }
done
[ "$stage" -le 2 ] || scored="--stage 1"  # Kaldi's stage 3 scores lattices that are there
"$(dirname "$0")/decode.sh" --nj "$nj" --cmd "$cmd" --beam "$beam" --lattice-beam "$lattice_beam" --max-active "${maxactive:-$max_active}" \
  --num-threads "$num_threads" --acwt "$acwt" --iter "$iter" --fmpe "$src/$iter.fmpe" --ngselect "$ngselect" ${transform_dir:+--transform-dir "$transform_dir"} \
  --skip-scoring "$skip_scoring" --scoring-opts "$scoring_opts" $scored "$@"
