#!/usr/bin/env bash
# Rescores lattices with another language model: the costs of the one that they were decoded with are taken off, the other's added.

usage() {
  cat <<EOF
Usage: steps/lmrescore.sh [options] <old-lang-dir> <new-lang-dir> <data-dir> <input-decode-dir> <output-decode-dir>
 e.g.: steps/lmrescore.sh data/lang_test_tgsmall data/lang_test_tgmed data/test exp/tri3/decode_tgsmall exp/tri3/decode_tgmed
Both language directories have the same words.txt, and G.fst (utils/format_lm.sh). Writes <output-decode-dir>/lat.JOB.gz, and scores them if
<data-dir> has text.
Options:
  --cmd <command>              # how to run jobs (default run.pl)
  --mode 1|2|3|4|5             # Kaldi's ways of doing it, which give about the same; here it is done in one way
  --self-loop-scale <scale>, --acoustic-scale <scale>   # of Kaldi's modes 4 and 5: transition costs stay as they are here
  --skip-scoring true|false    # lattices only (default false)
  --scoring-opts <options>     # for local/score.sh
EOF
}

cmd=run.pl mode=4 self_loop_scale=0.1 acoustic_scale=0.1 skip_scoring=false scoring_opts=""
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 5 ]; then usage >&2; exit 1; fi
case $mode in [1-5]) ;; *) echo "lmrescore.sh: ERROR: --mode is one of 1 to 5, found $mode." >&2; exit 1 ;; esac
lm_file=G.fst lm_opts=""
. rescore_lattices.sh
