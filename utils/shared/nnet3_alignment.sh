# Sourced by steps/nnet3/{align,align_lats}.sh when their options are read: checks these and the files, and sets nj and
# network, the options that say which network scores the frames, and how.
name=${0##*/}
[ -z "$graphs_scp" ] || { echo "$name: ERROR: --graphs-scp $graphs_scp: graphs are made of the transcripts here; leave it out." >&2; exit 1; }
device=cpu
[ "$use_gpu" = false ] || device=auto
network=(--model "$src/$iter.mdl" --device "$device" --frames-per-chunk "$frames_per_chunk" --extra-left-context "$extra_left_context"
  --extra-right-context "$extra_right_context" --extra-left-context-initial "$extra_left_context_initial"
  --extra-right-context-final "$extra_right_context_final")
[ -z "$online_ivector_dir" ] || network+=(--online-ivector-dir "$online_ivector_dir")
for f in "$data/feats.scp" "$data/text" "$lang/L.fst" "$src/$iter.mdl" "$src/tree"; do
  [ -f "$f" ] || { . missing.sh "$name" "$f"; exit 1; }
done
case $(cat "$src/frame_subsampling_factor" 2>/dev/null)/$scale_opts in
  [2-9]/*--self-loop-scale=0.1*)
    echo "$name: WARNING: $src has a frame_subsampling_factor, as chain models have; these want all scales at 1.0 (see its usage)." >&2 ;;
esac
. transcript_lattices.sh
. fewer_jobs.sh
fewer_jobs "$data" utterances

# Copies to dir what belongs to the alignment.
copy_model() {
  local f
  mkdir -p "$dir/log" || exit 1
  rm -f "$dir"/{inputs.json,texts.crc}  # of an older alignment
  for f in tree phones.txt cmvn_opts frame_subsampling_factor; do
    rm -f "$dir/$f"
    [ ! -f "$src/$f" ] || cp "$src/$f" "$dir" || exit 1
  done
  cp "$src/$iter.mdl" "$dir/final.mdl" || exit 1
}
