#!/usr/bin/env bash
# Decodes a data directory into lattices with the model above the decode directory, and scores them.
nj=4
cmd=run.pl
beam=13.0
lattice_beam=8.0
max_active=7000
min_active=200
acwt=0.083333
post_decode_acwt=1.0
model=
iter=
num_threads=1
srcdir=
nnet=
feature_transform=
class_frame_counts=
transform_dir=
fmpe=
ngselect=2
spk_vecs=
gselect=15
skip_scoring=false
scoring_opts=
device=auto
online_ivector_dir=
frames_per_chunk=50 extra_left_context=0 extra_right_context=0 extra_left_context_initial=-1 extra_right_context_final=-1
forward_opts=
stage=0
resume=false
lookahead=false

usage() {
  cat <<EOF
Usage: steps/decode.sh [options] <graph-dir> <data-dir> <decode-dir>
 e.g.: steps/decode.sh --nj 4 exp/mono/graph data/test exp/mono/decode_test
The model is final.mdl in the parent of <decode-dir>, unless it is named. Writes <decode-dir>/lat.JOB.gz, then scores them if <data-dir>
has text: by the recipe's local/score.sh, or where it has none by steps/score_kaldi.sh.
Options:
  --nj <n>                     # jobs; no more than utterances (default $nj)
  --cmd <command>              # how to run them (default run.pl)
  --beam <beam>                # wider is slower and more exact (default $beam)
  --lattice-beam <beam>        # how much worse than the best path a lattice's may be (default $lattice_beam)
  --max-active <n>             # most states active in a frame (default $max_active)
  --min-active <n>             # fewest (default $min_active)
  --acwt <scale>               # of the log-likelihoods while decoding (default $acwt)
  --post-decode-acwt <scale>   # of the lattices' acoustic costs: 10.0 for chain models, decoded with --acwt 1.0 (default $post_decode_acwt)
  --model <file>               # GMM to decode with, such as exp/tri3/final.alimdl, or the transition model beside a network
  --iter <iteration>           # or: <iteration>.mdl of the model's directory, in place of final.mdl
  --num-threads <n>            # of a job; they search over one graph in memory (default $num_threads)
  --srcdir <dir>               # directory of the model, in place of the parent of <decode-dir>
  --nnet <file>, --feature-transform <file>, --class-frame-counts <file>   # of a network, in place of the directory's own
  --transform-dir <dir>        # speakers' fMLLR transforms (trans.*) for a GMM's features
  --fmpe <file>, --ngselect <n>   # fMMI's transform of a GMM's features, and Gaussians in a frame (2); steps/decode_fmmi.sh gives it
  --spk-vecs <dir>, --gselect <n>   # speakers' vectors (vecs.*) for a subspace model, and Gaussians in a frame ($gselect);
                               # steps/decode_sgmm2.sh estimates vectors
  --device <name>              # where a network computes: cpu, cuda, cuda:N or auto (default $device); jobs take GPUs in turn
  --forward-opts <options>     # how utterances go through a network: "--dtype bf16", "--dtype int8"; "--forward chunks",
                               # "--forward latency-controlled"
  --online-ivector-dir <dir>, --frames-per-chunk <n>   # of an nnet3 network that takes i-vectors, or is recurrent; see steps/nnet3/decode.sh
  --extra-left-context, --extra-right-context, --extra-left-context-initial, --extra-right-context-final <n>
  --stage <n>                  # above 0: the lattices are there, and scored again (default $stage)
  --lookahead true|false       # compose HCLr.fst and Gr.fst of <graph-dir> (utils/mkgraph_lookahead.sh) while decoding, although it has
                               # HCLG.fst (default $lookahead); where it has none, that is done anyway
  --resume true|false          # go on where a run of the same was ended, at the next utterance; <decode-dir>/failed.JOB lists utterances
                               # without a lattice (default $resume)
  --skip-scoring true|false    # lattices only (default $skip_scoring)
  --scoring-opts <options>     # for local/score.sh
EOF
}

[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 3 ]; then usage >&2; exit 1; fi
graph=$1 data=$2 dir=$3
. score_decoded.sh
. fewer_jobs.sh
. graph_fst.sh
[ -z "$iter" ] || [ -n "$model" ] || model=${srcdir:-$(dirname "$dir")}/$iter.mdl
[ -z "$model" ] || [ -f "$model" ] || { . missing.sh decode.sh "$model"; exit 1; }

fst=$(graph_fst "$graph")
[ "$lookahead" = false ] || fst=$graph/HCLr.fst
for file in "$fst" "$graph/words.txt" "$data/feats.scp"; do
  [ -f "$file" ] || { . missing.sh decode.sh "$file"; exit 1; }
done
if [ "$stage" -le 0 ]; then
  fewer_jobs "$data" utterances
  mkdir -p "$dir/log" && rm -f "$dir"/{wer_*,best_wer,dev_chosen_wer} || exit 1
  if [ "$resume" = false ] || [ "$(cat "$dir/num_jobs" 2>/dev/null)" != "$nj" ]; then
    rm -f "$dir"/{lat.*.gz,lat.*.part,lat.*.done,failed.*} || exit 1
  fi
  echo "$nj" > "$dir/num_jobs" || exit 1
  threads=()
  [ "$num_threads" = 1 ] || threads=(--num-threads "$num_threads")
  $cmd "${threads[@]}" JOB=1:"$nj" "$dir/log/decode.JOB.log" pykaldist decode "${threads[@]}" --job JOB --nj "$nj" --beam "$beam" \
    --lattice-beam "$lattice_beam" --max-active "$max_active" --min-active "$min_active" --acwt "$acwt" \
    --post-decode-acwt "$post_decode_acwt" ${model:+--model "$model"} ${srcdir:+--srcdir "$srcdir"} ${nnet:+--nnet "$nnet"} \
    ${feature_transform:+--feature-transform "$feature_transform"} ${class_frame_counts:+--class-frame-counts "$class_frame_counts"} \
    ${transform_dir:+--transform-dir "$transform_dir"} ${fmpe:+--fmpe "$fmpe" --ngselect "$ngselect"} --device "$device" \
    ${spk_vecs:+--spk-vecs "$spk_vecs"} --gselect "$gselect" \
    ${online_ivector_dir:+--online-ivector-dir "$online_ivector_dir"} --frames-per-chunk "$frames_per_chunk" \
    --extra-left-context "$extra_left_context" --extra-right-context "$extra_right_context" \
    --extra-left-context-initial "$extra_left_context_initial" --extra-right-context-final "$extra_right_context_final" \
    --resume "$resume" --lookahead "$lookahead" $forward_opts "$graph" "$data" "$dir" || exit 1
fi
if [ "$skip_scoring" = false ] && [ -f "$data/text" ]; then
  score_decoded --cmd "$cmd" $scoring_opts "$data" "$graph" "$dir" || exit 1
fi
echo "decode.sh: lattices of $(wc -l < "$data/utt2spk") utterances in $dir"
