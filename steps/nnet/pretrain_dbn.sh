#!/usr/bin/env bash
# Pretrains a stack of RBMs, on a frame store or a data directory. Run again with the same options it resumes; with others it starts clean.

usage() {
  cat <<EOF
Usage: steps/nnet/pretrain_dbn.sh [options] <store-dir> <exp-dir>
   or: steps/nnet/pretrain_dbn.sh [options] <data> <exp-dir>
 e.g.: steps/nnet/pretrain_dbn.sh --hid-layers 4 --hid-dim 512 exp/dnn/store exp/dbn
       steps/nnet/train.sh --hid-layers 4 --hid-dim 512 --dbn exp/dbn exp/dnn/store exp/dnn
       steps/nnet/pretrain_dbn.sh --nn-depth 6 --hid-dim 1024 --rbm-iter 20 data-fmllr/train exp/dbn
Writes <exp-dir>/dbn.pt, the same as nnet1's <layer>.rbm, <layers>.dbn and final.feature_transform, history.jsonl, config.json and
log/pretrain_dbn.log (pretrain_dbn_job.log in Kaldi's form). While it runs, rbm<layer>/ckpt holds the checkpoints.

With a store, options are those of \`pykaldist pretrain-dbn\` (\`pykaldist pretrain-dbn --help\` lists all), the first ones being
  --hid-layers, --hid-dim, --splice
  --rbm-iter <n>           # epochs of a Bernoulli-Bernoulli RBM; the first, Gaussian-Bernoulli one has twice as many (1)
  --rbm-lrate <rate>       # of Bernoulli-Bernoulli RBMs (0.4)
  --rbm-lrate-low <rate>   # of the Gaussian-Bernoulli RBM (0.01)
  --rbm-l2penalty, --cd-steps, --param-stddev, --minibatch-size

With a data directory (it has feats.scp), those of Kaldi's script, with Kaldi's defaults; the store is packed in <exp-dir>/store. All
utterances are trained on; a tenth of them is what the cross-validation loss is of.
  --nn-depth <n> (6), --hid-dim <n> (2048), --rbm-iter (1), --rbm-lrate (0.4), --rbm-lrate-low (0.01), --rbm-l2penalty (0.0002)
  --param-stddev-first <s>, --param-stddev <s>   # of the initial weights (0.1), of the first RBM and of the others
  --input-vis-type gauss|bern                    # visible units of the first RBM (gauss)
  --splice <n> (5), --cmvn-opts <opts>, --delta-opts <opts>   # (none)
  --feature-transform <file>, --feature-transform-proto <file>   # of splice, shift and scale
  --rbm-extra-opts <opts>                        # --minibatch-size, --momentum, ...
  --copy-feats, --copy-feats-tmproot, --copy-feats-compress, --skip-cuda-check, --verbose <value>   # taken, and change nothing
Not here: --ivector.
EOF
  job_usage '  --lr-scale none|linear|sqrt, --blocks, --partition-level frame|utterance'
}

[ -f path.sh ] && . ./path.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../utils/shared/nnet_job.sh"
parse_job pretrain_dbn 2 "$@"
retry "$retries" "$cmd" "$job_log" pykaldist pretrain-dbn "${options[@]}" "$store" "$exp" || exit $?
say_result "$job_log" "stack of RBMs in $exp/dbn.pt"
