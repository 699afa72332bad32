# Sourced by steps/train_{mmi,mpe,smbr,mmi_fmmi,mmi_fmmi_indirect}.sh, which set: verb; ubm, the argument <ubm-dir> with a space behind, or
# nothing; example; makes, the sentence on what is trained; own, which of the options of own_usage they have; the defaults of tau,
# weight_tau, stage, schedule and learning_rate; fixed, options of the verb that the script fixes, or nothing.
name=${0##*/}

own_usage() {
  local option
  for option in "${own[@]}"; do
    case $option in
      num_iters) echo "  --num-iters <n>              # iterations ($num_iters)" ;;
      schedule) echo "  --schedule <list>            # what each iteration trains: fmmi, the offsets, or mmi, the model ($schedule)" ;;
      learning_rate) echo "  --learning-rate <rate>       # of the offsets ($learning_rate)" ;;
      ngselect) echo "  --ngselect <n>               # Gaussians of the UBM in a frame (2)" ;;
      boost) echo "  --boost <b>                  # boosted MMI: a frame with a wrong phone lowers the cost of a path by so much (0.0)" ;;
      cancel) echo "  --cancel true|false          # a frame's numerator and denominator cancel, transition-id by transition-id (true)" ;;
      drop_frames) echo "  --drop-frames true|false     # frames whose reference is not in the lattice are left out (false)" ;;
      one_silence_class) echo "  --one-silence-class true|false  # any silence phone is right where the reference has one; else none is (false)" ;;
      smooth_to_model) echo "  --smooth-to-model true|false # I-smoothing is towards the model before, else the reference's statistics (true)" ;;
    esac
  done
}

usage() {
  cat <<EOF
Usage: steps/$name [options] <data-dir> <lang-dir> <alignment-dir> ${ubm}<denlats-dir> <exp-dir>
 e.g.: steps/$name --cmd "\$train_cmd" $example
$makes
It starts from the model, the features and the transforms of <alignment-dir>; the lattices (steps/make_denlats.sh) are of the same system.
Writes <iteration>.mdl, final.mdl and what decoding needs, and <exp-dir>/denlats, the lattices packed.
Options, Kaldi's with Kaldi's defaults:
$(own_usage)
  --acwt <scale>               # of log-likelihoods ($acwt)
  --tau <frames>               # I-smoothing of Gaussians ($tau)
  --weight-tau <frames>        # smoothing of a mixture's weights ($weight_tau)
  --stage <n>                  # iteration to go on with, where a training was interrupted; up to 0: from the beginning ($stage)
  --config <file>              # options, one a line as name=value
and
  --add-reference true|false   # to each lattice that has no path with its words, at the cost of <denlats-dir>/dengraph (false)
EOF
  gmm_job_usage "jobs, no more than utterances (as many as <alignment-dir> has files of alignments)"
}

for option in "${own[@]}"; do
  case $option in
    num_iters) num_iters=4 ;; boost) boost=0.0 ;; ngselect) ngselect=2 ;; cancel | smooth_to_model) printf -v "$option" true ;;
    drop_frames | one_silence_class) printf -v "$option" false ;;
  esac
done
cmd=run.pl acwt=0.1 nj="" jobs=auto block_frames=0 keep_feats=auto device=cpu add_reference=false
[ -f path.sh ] && . ./path.sh
. gmm_jobs.sh
. parse_options.sh || exit 1
if [ -n "$ubm" ]; then count=6; else count=5; fi
if [ $# != "$count" ]; then usage >&2; exit 1; fi
data=$1 lang=$2 ali=$3 exp=${!#} denlats=${*: -2:1}
for f in "$data/feats.scp" "$data/text" "$lang/phones/silence.csl" "$ali"/{final.mdl,tree,ali.1.gz} ${ubm:+"$4/final.dubm"} \
  "$denlats/lat.1.gz"; do
  [ -f "$f" ] || { . missing.sh "$name" "$f"; exit 1; }
done
[ -n "$nj" ] || nj=$(cat "$ali/num_jobs") || exit 1
. fewer_jobs.sh
fewer_jobs "$data" utterances
options=() references=()
[ "$add_reference" = false ] || references=(--reference-data "$data")
for option in nj block_frames keep_feats device acwt tau weight_tau stage "${own[@]}"; do options+=("--${option//_/-}=${!option}"); done
gmm_jobs

if [ "$stage" -le 0 ] || [ ! -f "$exp/denlats/manifest.json" ]; then
  $cmd "$exp/log/pack.log" pykaldist pack-lattices "${references[@]}" "$lang" "$ali" "$denlats" "$exp/denlats" || exit 1
  echo "$name: $(sed -n 's/^SUMMARY: //p' "$exp/log/pack.log")"
fi
$stage_cmd "$exp/log/train.log" pykaldist "$verb" "${options[@]}" $fixed "$data" "$lang" "$ali" ${ubm:+"$4"} "$exp/denlats" "$exp" || exit 1
grep '^WARNING:' "$exp/log/train.log" | sed "s/^/$name: /" >&2
echo "$name: $(sed -n 's/^SUMMARY: //p' "$exp/log/train.log"); model in $exp"
