#!/usr/bin/env bash
# Rescores lattices with a large language model in Kaldi's ConstArpaLm format, which is not loaded but asked.

usage() {
  cat <<EOF
Usage: steps/lmrescore_const_arpa.sh [options] <old-lang-dir> <new-lang-dir> <data-dir> <input-decode-dir> <output-decode-dir>
 e.g.: utils/build_const_arpa_lm.sh data/local/lm_fglarge.arpa.gz data/lang data/lang_test_fglarge
       steps/lmrescore_const_arpa.sh data/lang_test_tgsmall data/lang_test_fglarge data/test exp/tri3/decode exp/tri3/decode_fglarge
Both language directories have the same words.txt; the old one has G.fst, the new one G.carpa. Writes <output-decode-dir>/lat.JOB.gz, and
scores them if <data-dir> has text.
Options:
  --cmd <command>              # how to run jobs (default run.pl)
  --stage <n>                  # above 1: the lattices are there, and scored again (default 1)
  --skip-scoring true|false    # lattices only (default false)
  --scoring-opts <options>     # for local/score.sh
EOF
}

cmd=run.pl stage=1 skip_scoring=false scoring_opts=""
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 5 ]; then usage >&2; exit 1; fi
lm_file=G.carpa lm_opts=--const-arpa
. rescore_lattices.sh
