#!/usr/bin/env bash
# Packs features and an alignment into a frame store, which steps/nnet/train.sh trains on.

usage() {
  cat <<EOF
Usage: steps/nnet/pack.sh [options] <data> <ali-dir> <store-dir>
 e.g.: steps/nnet/pack.sh --cv-percent 10 data-fbank/train exp/mono_ali exp/dnn/store
<ali-dir> is one of steps/align_si.sh, steps/import_ali.sh, or Kaldi.
       steps/nnet/pack.sh --nj 100 --cmd slurm.pl data-fbank/train exp/tri4_ali exp/dnn/store
Writes <store-dir>/train and <store-dir>/dev: features after CMVN, and the pdf of each frame (and what the options below add).
Options:
  --cv-percent <n>         # percentage of utterances held out for cross-validation (10); whole speakers where there are ten or more
  --cv-utts <file>         # or: the utterances to hold out, one a line
  --cv-data <data>, --cv-ali <ali-dir>   # or: another data directory, and its alignment (<ali-dir>)
  --cmvn-opts <string>     # CMVN ("--norm-vars=true")
  --delta-opts <string>    # deltas ("--delta-order=0": none)
  --store-dtype <type>     # float32 (default), float16, or uint8: 8 bits a value, as in Kaldi's compressed matrices
  --nj <n>                 # jobs; each packs a shard of the stores (1)
  --append true            # add to the stores in <store-dir>; --cv-percent 0 then holds out nothing more
  --batch <n>              # with --append: pack again what was appended before, 2 for what was first, for shards that are damaged
  --frame-weights <r>      # weight of each frame in training: vectors, scp:FILE or ark:FILE
  --posteriors <r>         # soft targets in place of the alignment: posteriors of pdfs, ark:FILE; of those of a frame
  --max-posteriors <n>     # the n likeliest are kept (all)
  --target-feats <r>       # features to train towards (train.sh --objective mse): matrices, scp:FILE or ark:FILE
  --ctc phones|chars       # label sequences too, for train.sh --objective ctc: the alignment's phones, or the transcripts' characters
  --seed <n>               # of the choice of held-out utterances (777)
  --cmd <command>          # how to run (run.pl)
EOF
}

cv_percent=10 cv_utts="" cv_data="" cv_ali="" cmvn_opts="--norm-vars=true" delta_opts="--delta-order=0" store_dtype=float32 seed=777 cmd=run.pl
nj=1 append=false batch="" frame_weights="" posteriors="" max_posteriors="" target_feats="" ctc=""
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
[ $# = 3 ] || { usage >&2; exit 1; }
data=$1 ali=$2 store=$3
for f in "$data/feats.scp" "$ali"; do
  [ -e "$f" ] || { . missing.sh pack.sh "$f"; exit 1; }
done

pack() { # <how to run, with options of the job>
  $cmd "$@" --append "$append" ${batch:+--batch "$batch"} --cv-percent "$cv_percent" ${cv_utts:+--cv-utts "$cv_utts"} \
    ${cv_data:+--cv-data "$cv_data"} ${cv_ali:+--cv-ali "$cv_ali"} --cmvn-opts="$cmvn_opts" \
    --delta-opts="$delta_opts" --store-dtype "$store_dtype" --seed "$seed" \
    ${frame_weights:+--frame-weights "$frame_weights"} ${posteriors:+--posteriors "$posteriors"} \
    ${max_posteriors:+--max-posteriors "$max_posteriors"} ${target_feats:+--target-feats "$target_feats"} \
    ${ctc:+--ctc "$ctc"} "$data" "$ali" "$store"
}

if [ "$nj" -gt 1 ]; then
  pack JOB=1:"$nj" "$store/log/pack.JOB.log" pykaldist pack --nj "$nj" --job JOB || exit 1
fi
pack "$store/log/pack.log" pykaldist pack --nj "$nj" || exit 1
grep "^$store/" "$store/log/pack.log" | sed 's/^/pack.sh: /'
