# Sourced by a recipe's local/run_{cnn,lstm,blstm}.sh, which train a network beside run.sh's DNN: their options, and what the DNN took.
#   exp=exp/lstm
#   . "$(dirname "${BASH_SOURCE[0]}")/../utils/shared/network.sh" || exit 1
# After it, the script is in the recipe's folder, every option is set, and any command that fails ends it. Beside the options there are
# $ali, the alignments of the DNN's frame store, $data, the folder of its features (data-fmllr, say), $graph, its decoding graph,
# want <n>, which says whether to run a stage, and decode_and_score <data dir>, the script's last one.
cd "$(dirname "${BASH_SOURCE[1]}")/.." || exit 1

usage() {
  cat <<EOF
Usage: local/${0##*/} [options]
 e.g.: local/${0##*/} --seed 1 --ngpu 4 --strategy bmuf
After run.sh, stages 0 to 3. Alignments, decoding graph and features are those of the recipe's DNN, as its frame store says.
Options:
  --exp <dir>               # where to write ($exp)
  --stage <n>, --stop-stage <n>   # first and last stage to run (0, 3): 2 training, 3 decoding and scoring; of run_cnn.sh also
                            # 0 filterbanks, 1 their frame store
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

. ./cmd.sh
stage=0 stop_stage=3 store=exp/dnn/store seed=777 ngpu=1 strategy=ma train_opts="" forward_opts="" device=auto nj=$(nproc)
. ./path.sh
. parse_options.sh || exit 1
[ $# = 0 ] || { usage >&2; exit 1; }
. say_what.sh
__manifest=$store/train/manifest.json
[ -f "$__manifest" ] || { echo "${0##*/}: ERROR: no file $__manifest; make it first: ./run.sh --stop-stage 3" >&2; exit 1; }
__given() { sed -n "s/^  \"$1\": \"\(.*\)\",\$/\1/p" "$__manifest"; }  # what pack.sh was given
ali=$(__given ali) data=$(dirname "$(__given data)")
for graph in "${ali%_ali}"/graph{_tgsmall,}; do [ ! -f "$graph/HCLG.fst" ] || break; done  # of exp/tri3 for exp/tri3_ali; or of imported ones
[ -f "$graph/HCLG.fst" ] || { echo "${0##*/}: ERROR: no file $graph/HCLG.fst; make it first: ./run.sh --stop-stage 2" >&2; exit 1; }
set -e

want() { [ "$stage" -le "$1" ] && [ "$1" -le "$stop_stage" ]; }

decode_and_score() {
  local dir="$exp/decode"
  steps/decode.sh --skip-scoring true --nj "$nj" --cmd "$cmd" --device "$device" --forward-opts "$forward_opts" "$graph" "$1" "$dir"
  steps/score_kaldi.sh --cmd "$cmd" --min-lmwt 4 --max-lmwt 20 "$1" "$graph" "$dir"
}
