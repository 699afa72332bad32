#!/usr/bin/env bash
# Trains a network on a frame store. Run again with the same options it resumes; with others it starts clean.

usage() {
  cat <<EOF
Usage: steps/nnet/train.sh [options] <store-dir> <exp-dir>
 e.g.: steps/nnet/train.sh --hid-layers 4 --hid-dim 512 exp/dnn/store exp/dnn
       steps/nnet/train.sh --nnet chen2016-dblstm exp/dnn/store exp/dblstm
       steps/nnet/train.sh --ngpu 16 --hosts node1:8,node2:8 --strategy bmuf exp/dnn/store exp/dnn
Writes <exp-dir>/final.pt, ali_train_pdf.counts, history.jsonl, config.json, ckpt/ and log/train.log.
Options are those of \`pykaldist train\` (\`pykaldist train --help\` lists all), the first ones being
  --nnet dnn|cnn|lstm|blstm, or a published network (pykaldist nnet-info NAME shows it): su2015-dnn, chen2016-dnn, chen2016-dblstm,
                           # chan2015-cnn, chan2015-rnn, ibm2019-lstm; each with -small behind it for two cores
  --hid-layers, --hid-dim, --activation, --splice, --dropout, --bottleneck-dim
  --conv 8x8x64/3,3x4x64 (frames x bands x filters, bands pooled), --channels, --batch-norm (cnn)
  --sequences whole|chunks|streams, --num-streams, --chunk 21-64+21, --projection-dim, --peepholes, --cell-clip, --diff-clip,
                           # --target-delay (lstm, blstm)
  --init nnet1|glorot|he, --layerwise-epochs <n> (layer-wise pretraining), --dbn <dir> (of pretrain_dbn.sh)
  --objective xent|mse|ctc # mse trains towards the store's target features, ctc towards its label sequences (--sequences whole)
  --learn-rate, --momentum, --l2-penalty, --minibatch-size, --learn-rate-coefs, --bias-learn-rate-coef
  --schedule newbob|exponential|fixed|warmup, --newbob-on loss|accuracy, --num-epochs, --learn-rates, --warmup-epochs
EOF
  job_usage '  --cluster <file>         # simulate this cluster: a run that can be repeated, of asynchronous strategies too
  --elastic true           # ma, bmuf, diloco: go on without processes that die, and start each again, --replacements times (1)
  --lr-scale none|linear|sqrt, --blocks, --partition-level frame|utterance, --serial-warmup <epochs>'
}

[ -f path.sh ] && . ./path.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../utils/shared/nnet_job.sh"
parse_job train 6 "$@"
retry "$retries" "$cmd" "$exp/log/train.log" pykaldist train "${options[@]}" "$store" "$exp" || exit $?
say_result "$exp/log/train.log" "network in $exp/final.pt"
