#!/usr/bin/env bash
# Aligns a data directory with a network, so that another can be trained on the alignment.

usage() {
  cat <<EOF
Usage: steps/nnet/align.sh [options] <data-dir> <lang-dir> <src-dir> <ali-dir>
 e.g.: steps/nnet/align.sh --nj 4 data-fbank/train data/lang exp/dnn exp/dnn_ali
<src-dir> is one of steps/nnet/train.sh, or Kaldi's. Writes ali.*.gz, and copies of final.mdl and tree, to <ali-dir>.
Options:
  --nj <n>                  # files of alignments, no more than utterances, and threads, as far as there are cores; nothing else depends on it (4)
  --cmd <command>           # how to run the job (run.pl)
  --device <name>           # where the network computes: cpu, cuda, cuda:N or auto (cpu)
  --use-gpu yes|no|optional # the same, as Kaldi says it
  --forward-opts <options>  # how utterances go through it: "--dtype bf16", "--dtype int8"; "--forward chunks",
                            # "--forward latency-controlled"
  --beam <beam>             # of the alignment (10)
  --retry-beam <beam>       # where an utterance does not reach its end (40)
  --careful true|false      # let an utterance fail that fits its transcript better said again, in part, than said once (false)
  --scale-opts <options>    # of alignment ("--transition-scale=1.0 --acoustic-scale=0.1 --self-loop-scale=0.1")
  --stage <n>               # as in Kaldi: above 0, nothing is aligned
Not here: --ivector, --text, --align-to-lats.
EOF
}

nj=4 cmd=run.pl device=cpu use_gpu=no beam=10 retry_beam=40 careful=false scale_opts="" stage=0 ivector="" text="" align_to_lats=false
forward_opts="" nnet_forward_opts="--no-softmax=true --prior-scale=1.0"
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 4 ]; then usage >&2; exit 1; fi
. nnet1_options.sh
data=$1 lang=$2 src=$3 dir=$4
[ -z "$text" ] || refuse --text "the transcripts are those of <data-dir>; copy it, with another text"
[ "$align_to_lats" = false ] || refuse --align-to-lats "alignments are not written as lattices; take steps/get_ctm.sh for word times"
for f in "$data/feats.scp" "$data/text" "$lang/L.fst" "$src/final.nnet" "$src/final.mdl" "$src/tree"; do
  [ -f "$f" ] || [ "$f" = "$src/final.nnet" -a -f "$src/final.pt" ] ||
    { . missing.sh align.sh "$f"; exit 1; }
done
[ "$stage" -le 0 ] || exit 0
. fewer_jobs.sh
fewer_jobs "$data" utterances

$cmd "$dir/log/align.log" pykaldist align-nnet --nj "$nj" --device "$device" --beam "$beam" --retry-beam "$retry_beam" --careful "$careful" \
  $scale_opts $forward_opts "$@" || exit 1
grep '^WARNING:' "$dir/log/align.log" | sed "s/^/align.sh: /" >&2
echo "align.sh: $(sed -n 's/^SUMMARY: //p' "$dir/log/align.log"); alignments in $dir"
