#!/usr/bin/env bash
# Gives a dictionary directory the probabilities of pronunciations, and of silence around words, that counts of aligned speech show.
max_normalize=true

usage() {
  cat <<EOF
Usage: utils/dict_dir_add_pronprobs.sh [options] <dict-dir> <pron-counts> [<sil-counts> <bigram-counts>] <new-dict-dir>
 e.g.: utils/dict_dir_add_pronprobs.sh data/local/dict_nosp exp/tri3/pron_counts_nowb.txt exp/tri3/sil_counts_nowb.txt \\
         exp/tri3/pron_bigram_counts_nowb.txt data/local/dict
The counts are those of steps/get_prons.sh; the names with _nowb are without the phones' positions in words, as dictionary directories are.
Writes lexiconp.txt; with counts of silence also lexiconp_silprob.txt and silprob.txt, which utils/prepare_lang.sh takes where they are.
Options:
  --max-normalize true|false   # a word's most frequent pronunciation gets probability 1 (default $max_normalize)
EOF
}

[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
[ $# = 3 ] || [ $# = 5 ] || { usage >&2; exit 1; }
made=$(pykaldist add-pron-probs --max-normalize "$max_normalize" "$@") || end_with $?
echo "dict_dir_add_pronprobs.sh: $made"
