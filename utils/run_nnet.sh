#!/usr/bin/env bash
# Trains a network beside a recipe's DNN, decodes the test set with it and scores; a recipe's local/run_*.sh give it their networks.

usage() {
  cat <<EOF
Usage: utils/run_nnet.sh --exp <dir> --network <options> [options]
 e.g.: local/run_lstm.sh --seed 1 --ngpu 4 --strategy bmuf     # gives these two
After run.sh, stages 0 to 3. Alignments, decoding graph and features are those of the recipe's DNN, as its frame store says.
Writes <exp> and what decoding leaves in it.
Options:
  --exp <dir>               # where to write
  --network <options>       # for steps/nnet/train.sh: the network and how to train it
  --fbank true|false        # filterbanks with deltas in place of the DNN's features; they go to data-fbank and fbank (false)
  --stage <n>               # 0 filterbanks, 1 their frame store, 2 training, 3 decoding and scoring (0)
  --store <dir>             # frame store of the DNN (exp/dnn/store)
  --seed <n>                # of weights and of the order of frames or utterances (777)
  --ngpu <n>                # workers in training, on as many devices or cores as there are (1)
  --strategy <name>         # what they exchange (ma)
  --train-opts <options>    # more for steps/nnet/train.sh, such as "--num-epochs 4"
  --forward-opts <options>  # how a bidirectional network reads utterances: "--forward chunks", "--forward latency-controlled" (whole)
  --device <name>           # cpu, cuda, cuda:N or auto (auto)
  --nj <n>                  # feature and decoding jobs (the machine's cores)
  --cmd <command>           # how to run jobs (see cmd.sh)
EOF
}

cmd=run.sh
[ -f cmd.sh ] && . ./cmd.sh
exp="" network="" fbank=false stage=0 store=exp/dnn/store seed=777 ngpu=1 strategy=ma train_opts="" forward_opts="" device=auto nj=$(nproc)
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 0 ] || [ -z "$exp" ] || [ -z "$network" ]; then usage >&2; exit 1; fi
. say_what.sh
manifest=$store/train/manifest.json
[ -f "$manifest" ] || { echo "run_nnet.sh: ERROR: no file $manifest; run run.sh first, stages 0 to 3." >&2; exit 1; }
made_of() { sed -n "s/^  \"$1\": \"\(.*\)\",\$/\1/p" "$manifest"; }  # what pack.sh was given
ali=$(made_of ali) data=$(dirname "$(made_of data)")
graph=${ali%_ali}/graph  # that of exp/tri3 for exp/tri3_ali; imported alignments have their own
[ -f "$graph/HCLG.fst" ] || { echo "run_nnet.sh: ERROR: no file $graph/HCLG.fst; run run.sh first, stage 2." >&2; exit 1; }
set -e

if $fbank; then
  data=data-fbank
  if [ "$stage" -le 0 ]; then
    for set in train test; do
      utils/copy_data_dir.sh data/$set $data/$set
      steps/make_fbank.sh --nj "$nj" --cmd "$cmd" $data/$set exp/make_fbank/$set fbank
      utils/fix_data_dir.sh $data/$set
      steps/compute_cmvn_stats.sh $data/$set exp/make_fbank/$set fbank
    done
  fi
  store=$exp/store
  if [ "$stage" -le 1 ]; then
    steps/nnet/pack.sh --cmd "$cmd" --delta-opts "--delta-order=2" $data/train "$ali" "$store"
  fi
fi

if [ "$stage" -le 2 ]; then
  steps/nnet/train.sh --cmd "$cmd" --ngpu "$ngpu" --strategy "$strategy" --device "$device" --seed "$seed" --randomizer-seed "$seed" \
    $network $train_opts "$store" "$exp"
fi

if [ "$stage" -le 3 ]; then
  steps/decode.sh --skip-scoring true --nj "$nj" --cmd "$cmd" --forward-opts "$forward_opts" "$graph" $data/test "$exp/decode"
  utils/score.sh --cmd "$cmd" $data/test "$graph" "$exp/decode"
fi
