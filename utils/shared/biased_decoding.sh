# Sourced by steps/cleanup/*.sh, whose options are read, with $name, $data, $lang, $src and $dir: what decodes with biased language models.
for file in "$data"/{text,feats.scp} "$lang"/{words.txt,L_disambig.fst,oov.txt,phones/align_lexicon.int} "$src"/{final.mdl,tree}; do
  [ -f "$file" ] || { . missing.sh "$name" "$file"; exit 1; }
done
[ -n "${transform_dir:-}" ] || { transform_dir=""; [ ! -f "$src/trans.1" ] || transform_dir=$src; }
if [ -z "$transform_dir" ] && [ -f "$src/final.alimdl" ]; then
  echo "$name: WARNING: $src has a speaker-adapted system and no transforms (trans.*); give the directory of an alignment of $data." >&2
fi

. fewer_jobs.sh
fewer_jobs "$data" utterances

decode_biased() {
  mkdir -p "$dir/log" && rm -f "$dir"/ctm_edits.[0-9]* || return 1
  $cmd JOB=1:"$nj" "$dir/log/decode_biased.JOB.log" pykaldist decode-biased --job JOB --nj "$nj" \
    ${transform_dir:+--transform-dir "$transform_dir"} "$@" "$data" "$lang" "$src" "$dir" || return 1
  grep -h '^WARNING:' "$dir"/log/decode_biased.*.log | sed "s/^/$name: /" >&2
  return 0
}
