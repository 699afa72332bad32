# Sourced by scripts before they end for want of a file: says that it does not exist, and the command that makes it.
#   [ -f "$file" ] || { . missing.sh decode.sh "$file"; exit 1; }
missing_dir=$(dirname "$2")
case $2 in
  */feats.scp) missing_command="steps/make_mfcc.sh $missing_dir" ;;
  */cmvn.scp) missing_command="steps/compute_cmvn_stats.sh $missing_dir" ;;
  */spk2utt) missing_command="utils/utt2spk_to_spk2utt.pl $missing_dir/utt2spk > $missing_dir/spk2utt" ;;
  */HCLG.fst) missing_command="utils/mkgraph.sh data/lang_test $(dirname "$missing_dir") $missing_dir" ;;
  */G.fst) missing_command="utils/format_lm.sh ${missing_dir%_test} data/local/lm.arpa.gz data/local/dict/lexicon.txt ${missing_dir%_test}_test" ;;
  */L.fst | */L_disambig.fst | */oov.int | */oov.txt | */lang*/phones.txt | */lang*/words.txt | */lang*/topo)
    missing_command="utils/prepare_lang.sh data/local/dict '<UNK>' data/local/lang $missing_dir" ;;
  *_ali/ali.1.gz | *_ali/num_jobs | *_ali/final.mdl) missing_command="steps/align_si.sh data/train data/lang ${missing_dir%_ali} $missing_dir" ;;
  */decode*/lat.1.gz | */decode*/num_jobs) missing_command="steps/decode.sh $(dirname "$missing_dir")/graph data/test $missing_dir" ;;
  */mono/final.mdl | */mono/tree) missing_command="steps/train_mono.sh data/train data/lang $missing_dir" ;;
  *) missing_command="" ;;
esac
if [ -n "$missing_command" ]; then missing_cure="make it first: $missing_command"; else missing_cure="the recipe's stages print what makes it: ./run.sh --dry-run true"; fi
echo "$1: ERROR: $2 does not exist; $missing_cure" >&2
