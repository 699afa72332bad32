#!/usr/bin/env bash
# Extracts i-vectors of all that a speaker says, in the files of online ones, in jobs: the best there are where decoding need not be online.

usage() {
  cat <<EOT
Usage: steps/online/nnet2/extract_ivectors.sh [options] <data-dir> <lang-dir> <extractor-dir> [<ali-dir>|<decode-dir>|<weights>] <ivector-dir>
 e.g.: steps/online/nnet2/extract_ivectors.sh --nj 4 data/test_hires data/lang exp/nnet3/extractor exp/tri3/decode exp/nnet3/ivectors_test
All rows of an utterance are equal. By an alignment or a decoding (its best paths) of the same frames silence counts --silence-weight; <weights>
is an archive with the weight of each frame. Writes ivector_online.scp, ivector_period and final.ie.id.
Options:
  --ivector-period <n>              # frames that a row stands for ($ivector_period)
  --num-gselect <n>                 # most Gaussians of a frame ($num_gselect)
  --min-post <p>                    # posteriors below it are left out ($min_post)
  --posterior-scale <s>             # scale of the posteriors, for frames beside each other say the same ($posterior_scale)
  --max-count <n>                   # count (frames times --posterior-scale) to which more is scaled down; 0: never ($max_count)
  --sub-speaker-frames <n>          # speakers are split into parts of at least so many weighted frames; 0: never ($sub_speaker_frames)
  --silence-weight <w>              # weight of frames of silence ($silence_weight)
  --acwt <scale>                    # of the acoustic costs, for the best paths of lattices ($acwt)
  --mdl <name>                      # <name>.mdl made the alignment or the lattices ($mdl)
  --compress true|false             # one byte a value (true)
  --nj <n>                          # jobs; no more than speakers ($nj)
  --cmd <command>                   # how to run them ($cmd)
  --stage <n>                       # above 2: the jobs' i-vectors are there, and only listed again
  --num-threads <n>                 # taken, and changes nothing
EOT
}

nj=30 cmd=run.pl stage=0 num_gselect=5 min_post=0.025 ivector_period=10 posterior_scale=0.1 max_count=100 sub_speaker_frames=0 compress=true
silence_weight=0.0 acwt=0.1 mdl=final num_threads=1
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 4 ] && [ $# != 5 ]; then usage >&2; exit 1; fi
data=$1 lang=$2 src=$3 dir=${!#} weights=""
[ $# = 4 ] || weights=$4
for f in "$data/feats.scp" "$lang/phones/silence.int" "$src"/{final.ie,final.dubm,global_cmvn.stats,splice_opts,online_cmvn.conf,final.mat}; do
  [ -f "$f" ] || { . missing.sh extract_ivectors.sh "$f"; exit 1; }
done
. fewer_jobs.sh
fewer_jobs "$data" speakers
mkdir -p "$dir" || exit 1
rm -f "$dir/ivector_online.scp"  # of i-vectors that are about to be replaced
id=$("$(dirname "${BASH_SOURCE[0]}")/../../nnet2/get_ivector_id.sh" "$src") || exit 1
[ "$stage" -gt 2 ] || $cmd JOB=1:"$nj" "$dir/log/extract_ivectors.JOB.log" pykaldist extract-speaker-ivectors --job JOB --nj "$nj" \
  --ivector-period "$ivector_period" --num-gselect "$num_gselect" --min-post "$min_post" --posterior-scale "$posterior_scale" \
  --max-count "$max_count" --sub-speaker-frames "$sub_speaker_frames" --compress "$compress" ${weights:+--weights "$weights"} \
  --silence-weight "$silence_weight" --acwt "$acwt" --mdl "$mdl" "$data" "$lang" "$src" "$dir" || exit 1
. list_ivectors.sh
