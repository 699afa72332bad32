#!/usr/bin/env bash
# Decodes a data directory with a subspace model (SGMM) system and speakers' vectors, and scores the lattices.
nj=4 cmd=run.pl stage=1 transform_dir="" acwt=0.1 beam=13.0 gselect=15 first_pass_gselect=3 max_active=7000 lattice_beam=6.0 vecs_beam=4.0
alignment_model="" max_mem="" num_threads=1 parallel_opts="" skip_scoring=false scoring_opts=""
use_fmllr=false fmllr_iters=10 fmllr_min_count=1000

usage() {
  cat <<EOF
Usage: steps/decode_sgmm2.sh [options] <graph-dir> <data-dir> <decode-dir>
 e.g.: steps/decode_sgmm2.sh --transform-dir exp/tri3b/decode exp/sgmm2_4a/graph data/test exp/sgmm2_4a/decode
The system is in the parent of <decode-dir>. Decodes without speakers, by final.alimdl; estimates speakers' vectors from these lattices, and
again from the lattices rescored with them; rescores with these vectors. Writes <decode-dir>/lat.JOB.gz and vecs.JOB, then scores if
<data-dir> has text: by the recipe's local/score.sh, or where it has none by steps/score_kaldi.sh.
Options, Kaldi's with Kaldi's defaults:
  --transform-dir <dir>        # speakers' fMLLR transforms (trans.*), for a system that was trained with such
  --nj <n>                     # jobs; no more than speakers ($nj)
  --cmd <command>              # how to run them ($cmd)
  --acwt <scale>               # of the log-likelihoods while decoding ($acwt)
  --beam <beam>                # wider is slower and more exact ($beam)
  --lattice-beam <beam>        # how much worse than the best path a lattice's may be ($lattice_beam)
  --max-active <n>             # most states active in a frame ($max_active)
  --vecs-beam <beam>           # of the lattices that vectors are estimated from ($vecs_beam)
  --gselect <n>                # Gaussians in a frame ($gselect)
  --first-pass-gselect <n>     # Gaussians in a frame of the first decoding ($first_pass_gselect)
  --use-fmllr true|false       # estimate speakers' fMLLR transforms, too, and rescore with both; <decode-dir>/trans.JOB has them, each in
                               # one with that of --transform-dir ($use_fmllr)
  --fmllr-iters <n>            # steps of their estimation ($fmllr_iters)
  --fmllr-min-count <n>        # frames that a speaker needs; with fewer he keeps the identity ($fmllr_min_count)
  --alignment-model <file>     # for the decoding without speakers (final.alimdl; final.mdl where there is none)
  --stage <n>                  # 3: the lattices of the first decoding are there, 6: the vectors too, 8: all lattices, for scoring ($stage)
  --skip-scoring true|false    # lattices only ($skip_scoring)
  --scoring-opts <options>     # for local/score.sh
  --config <file>              # options, one a line as name=value
  --num-threads <n>            # of a job's first decoding, which search over one graph in memory ($num_threads)
  --max-mem, --parallel-opts <value>   # taken as Kaldi takes them, and change nothing
EOF
}

[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 3 ]; then usage >&2; exit 1; fi
graph=$1 data=$2 dir=$3 src=$(dirname "$3") pass1=$3.pass1  # lattices of states
. score_decoded.sh
. fewer_jobs.sh
. graph_fst.sh
[ -n "$alignment_model" ] || { alignment_model=$src/final.alimdl; [ -f "$alignment_model" ] || alignment_model=$src/final.mdl; }
for file in "$(graph_fst "$graph")" "$graph"/{words.txt,phones/silence.csl} "$data/feats.scp" "$src/final.mdl" "$alignment_model" \
  ${transform_dir:+"$transform_dir/trans.1"}; do
  [ -f "$file" ] || { . missing.sh decode_sgmm2.sh "$file"; exit 1; }
done
fewer_jobs "$data" speakers
jobs=(--job JOB --nj "$nj" --acwt "$acwt")
transforms=()
[ -z "$transform_dir" ] || transforms=(--transform-dir "$transform_dir")
mkdir -p "$dir/log" || exit 1
if [ "$stage" -le 6 ]; then rm -f "$dir"/{lat.*.gz,wer_*,best_wer,dev_chosen_wer}; fi
echo "$nj" > "$dir/num_jobs" || exit 1

if [ "$stage" -le 2 ]; then
  rm -rf "$pass1"
  threads=()
  [ "$num_threads" = 1 ] || threads=(--num-threads "$num_threads")
  $cmd "${threads[@]}" JOB=1:"$nj" "$dir/log/decode_pass1.JOB.log" pykaldist decode "${threads[@]}" "${jobs[@]}" "${transforms[@]}" --beam "$beam" \
    --lattice-beam "$lattice_beam" --max-active "$max_active" --determinize-lattice false --gselect "$first_pass_gselect" \
    --model "$alignment_model" --srcdir "$src" "$graph" "$data" "$pass1" || exit 1
fi
vectors=()
if [ -f "$src/vecs.1" ] || [ "$alignment_model" != "$src/final.mdl" ]; then
  [ "$stage" -gt 5 ] || { rm -f "$dir"/{vecs,trans}.*
    $cmd JOB=1:"$nj" "$dir/log/vecs.JOB.log" pykaldist est-spkvecs "${jobs[@]}" "${transforms[@]}" --beam "$vecs_beam" \
      --gselect "$gselect" --aligner "$alignment_model" --use-fmllr "$use_fmllr" --fmllr-iters "$fmllr_iters" \
      --fmllr-min-count "$fmllr_min_count" "$graph" "$data" "$src" "$pass1" "$dir" || exit 1; }
  vectors=(--spk-vecs "$dir")
elif [ "$use_fmllr" = true ]; then
  echo "decode_sgmm2.sh: ERROR: --use-fmllr true: $src has no space of speakers (--spk-dim 0), for which it is not made." >&2
  exit 1
fi
[ "$use_fmllr" = false ] || transforms=(--transform-dir "$dir")
if [ "$stage" -le 6 ]; then
  $cmd JOB=1:"$nj" "$dir/log/rescore.JOB.log" pykaldist rescore-lattices "${jobs[@]}" "${transforms[@]}" --lattice-beam "$lattice_beam" \
    --gselect "$gselect" "${vectors[@]}" "$data" "$src" "$pass1" "$dir" || exit 1
  rm -rf "$pass1"
fi
if [ "$skip_scoring" = false ] && [ -f "$data/text" ]; then
  score_decoded --cmd "$cmd" $scoring_opts "$data" "$graph" "$dir" > /dev/null || exit 1
fi
best=""; [ ! -f "$dir/best_wer" ] || best="; $(cat "$dir/best_wer")"
echo "decode_sgmm2.sh: lattices of $(wc -l < "$data/utt2spk") utterances and speakers' vectors in $dir$best"
