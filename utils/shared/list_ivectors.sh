# Sourced by steps/online/nnet2/extract_ivectors{,_online}.sh when the jobs have ended: writes ivector_online.scp, ivector_period and
# final.ie.id to dir, where nj jobs have left their parts; needs ivector_period and id, the extractor's checksum, too.
for job in $(seq "$nj"); do
  cat "$dir/ivector_online.$job.scp" || exit 1
done > "$dir/ivector_online.scp.new" || exit 1
echo "$ivector_period" > "$dir/ivector_period" && echo "$id" > "$dir/final.ie.id" && mv "$dir/ivector_online.scp"{.new,} || exit 1
echo "${0##*/}: i-vectors of $(wc -l < "$dir/ivector_online.scp") utterances in $dir/ivector_online.scp"
