#!/usr/bin/env bash
# Writes a chain model as a model directory of the Vosk recogniser.

usage() {
  cat <<EOF
Usage: steps/export_vosk.sh [options] <model-dir> <vosk-dir>
 e.g.: steps/export_vosk.sh --mfcc-config conf/mfcc_hires.conf exp/chain/tdnn exp/chain/tdnn_vosk
Writes <vosk-dir>/am/final.mdl, conf/{mfcc,model}.conf, graph/{HCLG.fst,words.txt,phones/word_boundary.int}, ivector/ where the
network takes i-vectors, and README.md, a model card. Of a graph of utils/mkgraph_lookahead.sh it writes HCLr.fst, Gr.fst and
disambig_tid.int in place of HCLG.fst. What was written is run once (pykaldist export). Folders of an earlier export are replaced. Vosk
normalises nothing: train on MFCCs as they are (no CMVN), or name the training data with --mean-of.
Options:
  --graph-dir <dir>        # graph (that which the model was decoded with, or one of the recipe that is for it)
  --mfcc-config <file>     # options of the MFCCs, as in training ($mfcc_config)
  --extractor <dir>        # i-vector extractor, with final.{dubm,ie,mat}, global_cmvn.stats, online_cmvn.conf and splice_opts
  --mean-of <data-dir>     # of a network trained on features less each speaker's mean: its training data, with cmvn.scp, whose mean is
                           # subtracted in the speaker's place
  --beam ($beam), --lattice-beam ($lattice_beam), --max-active ($max_active), --min-active ($min_active), --acwt ($acwt)   # of the search
EOF
}

graph_dir="" mfcc_config=conf/mfcc_hires.conf extractor="" mean_of="" beam=15.0 lattice_beam=8.0 max_active=7000 min_active=200 acwt=1.0
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 2 ]; then usage >&2; exit 1; fi
for file in "$1/final.mdl" ${graph_dir:+"$graph_dir/words.txt"} "$mfcc_config"; do
  [ -f "$file" ] || { . missing.sh export_vosk.sh "$file"; exit 1; }
done
pykaldist export --to vosk ${graph_dir:+--graph-dir "$graph_dir"} --mfcc-config "$mfcc_config" ${extractor:+--extractor "$extractor"} \
  ${mean_of:+--mean-of "$mean_of"} --beam "$beam" --lattice-beam "$lattice_beam" --max-active "$max_active" --min-active "$min_active" \
  --acwt "$acwt" "$1" "$2" || exit 1
echo "export_vosk.sh: Vosk model of $1 in $2"
