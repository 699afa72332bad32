#!/usr/bin/env bash
# Extracts i-vectors, one every few frames, of what the speaker has said until then, in jobs.

usage() {
  cat <<EOF
Usage: steps/online/nnet2/extract_ivectors_online.sh [options] <data-dir> <extractor-dir> <ivector-dir>
 e.g.: steps/online/nnet2/extract_ivectors_online.sh --nj 4 data/test_hires exp/nnet3/extractor exp/nnet3/ivectors_test_hires
What was heard goes on from one of a speaker's utterances to the next. Writes ivector_online.scp and ivector_period, final.ie.id, and in
conf/ the options, as online decoders read them.
Options:
  --ivector-period <n>              # frames from one i-vector to the next ($ivector_period)
  --num-gselect <n>                 # most Gaussians of a frame ($num_gselect)
  --min-post <p>                    # posteriors below it are left out ($min_post)
  --posterior-scale <s>             # scale of the posteriors, for frames beside each other say the same ($posterior_scale)
  --max-count <n>                   # count (frames times --posterior-scale) above which the prior counts more; 0: never ($max_count)
  --use-vad true|false              # frames count as <data-dir>/vad.scp says (false)
  --compress true|false             # one byte a value (true)
  --nj <n>                          # jobs; no more than speakers ($nj)
  --cmd <command>                   # how to run them ($cmd)
  --stage <n>                       # above 0: the jobs' i-vectors are there, and only listed again
EOF
}

nj=4 cmd=run.pl stage=0 num_gselect=5 min_post=0.025 ivector_period=10 posterior_scale=0.1 compress=true max_count=0 use_vad=false
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 3 ]; then usage >&2; exit 1; fi
data=$1 src=$2 dir=$3
vad=""
[ "$use_vad" != true ] || vad=$data/vad.scp
for f in "$data/feats.scp" "$src"/{final.ie,final.dubm,global_cmvn.stats,splice_opts,online_cmvn.conf,final.mat} ${vad:+"$vad"}; do
  [ -f "$f" ] || { . missing.sh extract_ivectors_online.sh "$f"; exit 1; }
done
. fewer_jobs.sh
fewer_jobs "$data" speakers
mkdir -p "$dir/conf" || exit 1
rm -f "$dir/ivector_online.scp"  # of i-vectors that are about to be replaced
id=$("$(dirname "${BASH_SOURCE[0]}")/../../nnet2/get_ivector_id.sh" "$src") || exit 1
cp "$src/online_cmvn.conf" "$dir/conf/" || exit 1
tr -s ' ' '\n' < "$src/splice_opts" | grep . > "$dir/conf/splice.conf"
cat > "$dir/conf/ivector_extractor.conf" <<EOF || exit 1
--cmvn-config=$dir/conf/online_cmvn.conf
--ivector-period=$ivector_period
--splice-config=$dir/conf/splice.conf
--lda-matrix=$src/final.mat
--global-cmvn-stats=$src/global_cmvn.stats
--diag-ubm=$src/final.dubm
--ivector-extractor=$src/final.ie
--num-gselect=$num_gselect
--min-post=$min_post
--posterior-scale=$posterior_scale
--max-remembered-frames=1000
--max-count=$max_count
EOF
[ ! -f "$src/online_cmvn_iextractor" ] || echo --online-cmvn-iextractor=true >> "$dir/conf/ivector_extractor.conf" || exit 1

[ "$stage" -gt 0 ] || $cmd JOB=1:"$nj" "$dir/log/extract_ivectors.JOB.log" pykaldist extract-ivectors --job JOB --nj "$nj" \
  --ivector-period "$ivector_period" --num-gselect "$num_gselect" --min-post "$min_post" --posterior-scale "$posterior_scale" \
  --max-count "$max_count" --compress "$compress" --use-vad "$use_vad" "$data" "$src" "$dir" || exit 1
. list_ivectors.sh
