#!/usr/bin/env bash
# Word error rates of a decode directory by NIST's sclite, at every language model weight and word insertion penalty.
cmd=run.pl nj=4 min_lmwt=5 max_lmwt=17 word_ins_penalty=0.0,0.5,1.0 frame_shift="" acronyms="" not_scored="" subsets=""

usage() {
  cat <<EOF
Usage: steps/score_sclite.sh [options] <data-dir> <lang-dir|graph-dir> <decode-dir>
 e.g.: steps/score_sclite.sh --subsets local/subsets.tsv data/eval2000 exp/tri4/graph exp/tri4/decode_eval2000
<data-dir> has the reference (stm) and the rules (glm) of an evaluation by NIST, whose toolkit (Debian's package sctk) scores. Writes
<decode-dir>/wer_<lmwt>_<wip> and best_wer, of a part of the set <decode-dir>/<part>/best_wer, and sclite's reports,
<decode-dir>/score_<lmwt>_<wip>/<set>.ctm[.<part>].filt.{sys,raw,dtl,pra ...}.
Options:
  --cmd <command>                # how to run the job (run.pl)
  --nj <n>                       # scorings at a time ($nj)
  --min-lmwt <n>                 # lowest language model weight ($min_lmwt)
  --max-lmwt <n>                 # highest ($max_lmwt)
  --word-ins-penalty <p,p,...>   # word insertion penalties ($word_ins_penalty)
  --subsets <tsv>                # parts that are scored by themselves too: set, name, pattern in \`<file> <labels>\` of the reference
  --not-scored <tsv>             # rules (pattern, replacement, example, result); a recognised word of which nothing is left is not scored
  --acronyms <file>              # acronyms.txt of a dictionary directory: their letters are scored one by one
  --frame-shift <seconds>        # from frame to frame (0.01, times the model's frame_subsampling_factor)
EOF
}

[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
[ $# = 3 ] || { usage >&2; exit 1; }
dir=$3 data=$1 lang=$2
for file in "$data"/{stm,glm,utt2spk} "$lang"/{words.txt,phones/align_lexicon.int} "$dir"/{lat.1.gz,../final.mdl}; do
  [ -f "$file" ] || { . missing.sh score_sclite.sh "$file"; exit 1; }
done
$cmd "$dir/scoring/log/score_sclite.log" pykaldist score-sclite --nj "$nj" --min-lmwt "$min_lmwt" --max-lmwt "$max_lmwt" \
  --word-ins-penalty="$word_ins_penalty" ${frame_shift:+--frame-shift "$frame_shift"} --subsets="$subsets" --not-scored="$not_scored" \
  --acronyms="$acronyms" "$data" "$lang" "$dir" || exit 1
for best in "$dir"/best_wer "$dir"/*/best_wer; do
  [ ! -f "$best" ] || echo "score_sclite.sh: $(cat "$best")"
done
