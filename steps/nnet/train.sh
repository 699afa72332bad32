#!/usr/bin/env bash
# Trains a network, on a frame store or on data directories. Run again with the same options it resumes; with others it starts clean.

usage() {
  cat <<EOF
Usage: steps/nnet/train.sh [options] <store-dir> <exp-dir>
   or: steps/nnet/train.sh [options] <data-tr> <data-cv> <lang-dir> <ali-tr> <ali-cv> <exp-dir>
 e.g.: steps/nnet/train.sh --hid-layers 4 --hid-dim 512 exp/dnn/store exp/dnn
       steps/nnet/train.sh --nnet chen2016-dblstm exp/dnn/store exp/dblstm
       steps/nnet/train.sh --ngpu 16 --hosts node1:8,node2:8 --strategy bmuf exp/dnn/store exp/dnn
       steps/nnet/train.sh --feature-transform exp/dbn/final.feature_transform --dbn exp/dbn/6.dbn --hid-layers 0 --ngpu 4 \\
         data/train_tr90 data/train_cv10 data/lang exp/tri3_ali exp/tri3_ali exp/dnn
Writes <exp-dir>/final.pt, ali_train_pdf.counts, history.jsonl, config.json, ckpt/ and log/train.log (train_job.log in Kaldi's form).

With two arguments, options are those of \`pykaldist train\` (\`pykaldist train --help\` lists all), the first ones being
  --nnet dnn|cnn|lstm|blstm, or a published network (pykaldist nnet-info NAME shows it): su2015-dnn, chen2016-dnn, chen2016-dblstm,
                           # chan2015-cnn, chan2015-rnn, ibm2019-lstm; each with -small behind it for two cores;
                           # of chain training tdnnf, tdnnf-1k, cnn-tdnn, with --objective chain --optimizer nnet3
  --hid-layers, --hid-dim, --activation, --splice, --dropout, --bottleneck-dim
  --conv 8x8x64/3,3x4x64 (frames x bands x filters, bands pooled), --channels, --batch-norm (cnn)
  --sequences whole|chunks|streams, --num-streams, --chunk 21-64+21, --projection-dim, --peepholes, --cell-clip, --diff-clip,
                           # --target-delay (lstm, blstm)
  --init nnet1|glorot|he, --layerwise-epochs <n> (layer-wise pretraining), --dbn <dir> (of pretrain_dbn.sh, or a <layers>.dbn of it)
  --nnet-init <file> (nnet1 network to start from), --feature-transform <file> (nnet1's, in place of the store's mean and variance)
  --objective xent|mse|ctc # mse trains towards the store's target features, ctc towards its label sequences (--sequences whole)
  --objective smbr|mpe|mmi --denlats <store>   # on lattices (pykaldist pack-lattices); train_mpe.sh and train_mmi.sh do all of it
  --learn-rate, --momentum, --l2-penalty, --minibatch-size, --learn-rate-coefs, --bias-learn-rate-coef
  --schedule newbob|exponential|fixed|warmup, --newbob-on loss|accuracy, --num-epochs, --learn-rates, --warmup-epochs

With six arguments, those of Kaldi's script, with Kaldi's defaults; the store is packed in <exp-dir>/store. <ali-tr> and <ali-cv> may be one.
  --hid-layers <n> (4), --hid-dim <n> (1024), --splice <n> (5), --learn-rate <rate> (0.008), --seed <n> (777)
  --cmvn-opts <opts>, --delta-opts <opts>    # (none); with --feature-transform or --dbn those of the pretraining
  --feature-transform <file>, --feature-transform-proto <file>   # of splice, shift and scale
  --dbn <file>                               # below the --hid-layers, which are 0 for the output layer alone
  --bn-dim <n>                               # a bottleneck, and one more hidden layer behind it
  --network-type dnn|cnn1d|lstm|blstm, --proto-opts <opts>, --cnn-proto-opts <opts>   # of make_nnet_proto.py, make_lstm_proto.py ...
  --nnet-proto <file>, --nnet-init <file>    # the network's prototype, or itself, before training
  --scheduler-opts <opts>, --train-tool <program>, --train-tool-opts <opts>   # --momentum, --max-iters ..., --minibatch-size ...
  --labels <posteriors>, --num-tgt <n>, --frame-weights <vectors>   # ark:FILE
  --skip-phoneset-check true|false           # phones of <lang-dir> and the alignments (false)
  --copy-feats, --copy-feats-tmproot, --copy-feats-compress, --skip-cuda-check, --verbose <value>   # taken, and change nothing: the store is the copy
Not here: --ivector, --online-cmvn-opts, --feat-type traps|transf, --network-type cnn2d, --split-feats, --utt-weights, --feats-std.
Options of the first form that Kaldi has not (--optimizer, --schedule ...) are for both.
EOF
  job_usage '  --cluster <file>         # simulate this cluster: a run that can be repeated, of asynchronous strategies too
  --elastic true           # ma, bmuf, diloco: go on without processes that die, and start each again, --replacements times (1)
  --lr-scale none|linear|sqrt, --blocks, --partition-level frame|utterance, --serial-warmup <epochs>'
}

[ -f path.sh ] && . ./path.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../utils/shared/nnet_job.sh"
parse_job train 6 "$@"
retry "$retries" "$cmd" "$job_log" pykaldist train "${options[@]}" "$store" "$exp" || exit $?
say_result "$job_log" "network in $exp/final.pt"
