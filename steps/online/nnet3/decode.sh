#!/usr/bin/env bash
# Decodes a data directory from its audio as if that still came, with Kaldi's options of this script.

usage() {
  cat <<EOF
Usage: steps/online/nnet3/decode.sh [options] <graph-dir> <data-dir> <decode-dir>
 e.g.: steps/online/nnet3/decode.sh --acwt 1.0 --post-decode-acwt 10.0 exp/chain/tdnn/graph data/test exp/chain/tdnn_online/decode_test
<decode-dir> is in a directory made by steps/online/nnet3/prepare_online_decoding.sh. Features and i-vectors are made of the audio. Writes
lattices, and scores them.
Options:
  --nj ($nj), --cmd ($cmd), --config <file>
  --acwt ($acwt), --post-decode-acwt ($post_decode_acwt), --beam ($beam), --lattice-beam ($lattice_beam), --max-active ($max_active), --min-active ($min_active)
  --frames-per-chunk <n>          # frames that come at once ($frames_per_chunk)
  --per-utt true|false            # for i-vectors, a speaker's utterances tell nothing of the next ($per_utt)
  --online true|false             # i-vectors of what was heard so far, or of the whole utterance ($online)
  --do-endpointing true|false     # an utterance ends at its first endpoint ($do_endpointing)
  --silence-weight <w>            # what a frame counts for i-vectors that the search takes for silence ($silence_weight)
  --max-state-duration <n>        # with another weight than 1: output frames for which a state may go on, before it is silence ($max_state_duration)
  --iter ($iter), --online-config <file>, --scoring-opts <options>, --skip-scoring ($skip_scoring), --stage ($stage; above 0: score again)
  --extra-left-context-initial <n>   # taken, and changes nothing
Not here: --do-speex-compressing true.
EOF
}

stage=0 nj=4 cmd=run.pl frames_per_chunk=20 extra_left_context_initial=0 min_active=200 max_active=7000 beam=15.0 lattice_beam=6.0 acwt=0.1
post_decode_acwt=1.0 per_utt=false online=true do_endpointing=false do_speex_compressing=false scoring_opts="" skip_scoring=false
silence_weight=1.0 max_state_duration=40 iter=final online_config=""
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 3 ]; then usage >&2; exit 1; fi
[ "$do_speex_compressing" = false ] || { echo "steps/online/nnet3/decode.sh: ERROR: --do-speex-compressing true is not here." >&2; exit 1; }
graph=$1 data=$2 dir=$3
. score_decoded.sh
. fewer_jobs.sh
. graph_fst.sh
config=${online_config:-$(dirname "$dir")/conf/online.conf}
for file in "$(graph_fst "$graph")" "$graph/words.txt" "$data/wav.scp" "$config" "$(dirname "$dir")/$iter.mdl"; do
  [ -f "$file" ] || { . missing.sh decode.sh "$file"; exit 1; }
done
if [ "$stage" -le 0 ]; then
  fewer_jobs "$data" utterances
  mkdir -p "$dir/log" && rm -f "$dir"/{wer_*,best_wer,lat.*.gz} || exit 1
  echo "$nj" > "$dir/num_jobs" || exit 1
  $cmd JOB=1:"$nj" "$dir/log/decode.JOB.log" pykaldist decode-online --job JOB --nj "$nj" --online-config "$config" --iter "$iter" \
    --frames-per-chunk "$frames_per_chunk" --online "$online" --per-utt "$per_utt" --do-endpointing "$do_endpointing" --acwt "$acwt" \
    --post-decode-acwt "$post_decode_acwt" --beam "$beam" --lattice-beam "$lattice_beam" --max-active "$max_active" \
    --min-active "$min_active" --ivector-silence-weighting.silence-weight "$silence_weight" \
    --ivector-silence-weighting.max-state-duration "$max_state_duration" "$graph" "$data" "$dir" || exit 1
fi
if [ "$skip_scoring" = false ] && [ -f "$data/text" ]; then
  score_decoded --cmd "$cmd" $scoring_opts "$data" "$graph" "$dir" || exit 1
fi
echo "decode.sh: lattices of $(wc -l < "$data/utt2spk") utterances in $dir"
