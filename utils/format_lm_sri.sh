#!/usr/bin/env bash
# Makes a language directory with the grammar of an ARPA language model that is cut to the words of the directory first.
srilm_opts="-subset -prune-lowprobs -unk -tolower"

usage() {
  cat <<EOF
Usage: utils/format_lm_sri.sh [options] <lang-dir> <arpa-lm> [<lexicon>] <out-lang-dir>
 e.g.: utils/format_lm_sri.sh data/lang data/local/lm/sw1.o3g.kn.gz data/lang_sw1_tg
As utils/format_lm.sh, but what is left of the model is normalised again; no SRILM is needed. <lexicon> may be left out.
Options:
  --srilm-opts <options>   # of \`change-lm-vocab\`, which are SRILM's (default "$srilm_opts")
EOF
}

[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 3 ] && [ $# != 4 ]; then usage >&2; exit 1; fi
lang=$1 arpa=$2 out_lang=${!#} lexicon=$1/phones/align_lexicon.txt
[ $# = 3 ] || lexicon=$3
for file in "$lang/words.txt" "$arpa" "$lexicon"; do
  [ -f "$file" ] || { . missing.sh format_lm_sri.sh "$file"; exit 1; }
done
mkdir -p "$out_lang" || exit 1
cut_lm=$out_lang/lm.arpa.gz
cut=$(change-lm-vocab -vocab "$lang/words.txt" -lm "$arpa" -write-lm "$cut_lm" $srilm_opts 2>&1) || { status=$?; echo "$cut" >&2; end_with $status; }
made=$(pykaldist format-lm "$lang" "$cut_lm" "$lexicon" "$out_lang") || end_with $?
printf 'format_lm_sri.sh: %s\n' "$cut" "${made//$'\n'/$'\n'format_lm_sri.sh: }"
