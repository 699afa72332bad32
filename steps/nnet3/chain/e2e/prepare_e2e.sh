#!/usr/bin/env bash
# Prepares chain (LF-MMI) training from transcripts alone: a tree that is not grown, the transition model, and graphs of the transcripts.

usage() {
  cat <<EOF
Usage: steps/nnet3/chain/e2e/prepare_e2e.sh [options] <data-dir> <lang-dir> <tree-dir>
 e.g.: steps/nnet3/chain/e2e/prepare_e2e.sh --nj 4 --type biphone data/train data/lang_chain exp/chain/e2e_tree
The topology of <lang-dir> is that of chain models (steps/nnet3/chain/gen_topo.py). Writes tree, 0.trans_mdl, 0.mdl, final.mdl, phones.txt, and the
graphs of the transcripts, fst.*.ark with fst.*.scp, to <tree-dir>.
Options:
  --type mono|biphone         # pdfs for each phone, or for each phone behind each other one (mono)
  --shared-phones true|false  # phones of a set (phones/sets.int) have the same pdfs (true)
  --ci-silence true|false     # phones of phones/context_indep.csl have the same pdfs wherever they stand (false)
  --tie true|false            # biphones that are rare have the pdfs of their phone, or of all rare ones (false)
  --min-biphone-count <n>     # fewest occurrences of a biphone that is not tied (100)
  --min-monophone-count <n>   # occurrences above which a phone has pdfs for its rare biphones (20)
  --scale-opts <options>      # of the graphs ("--transition-scale=0.0 --self-loop-scale=0.0")
  --treedir <dir>             # take the tree and the model of this directory
  --nj <n>                    # archives of graphs, no more than utterances (4)
  --cmd <command>             # how to run the job (run.pl)
  --stage <n>                 # taken; all of it is one job
EOF
}

cmd=run.pl nj=4 stage=0 shared_phones=true treedir="" type=mono ci_silence=false tie=false min_biphone_count=100 min_monophone_count=20
scale_opts="--transition-scale=0.0 --self-loop-scale=0.0"
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
if [ $# != 3 ]; then usage >&2; exit 1; fi
data=$1 lang=$2 dir=$3
for f in "$data/text" "$lang"/{topo,L.fst,phones.txt,phones/sets.int} ${treedir:+"$treedir/tree" "$treedir/final.mdl"}; do
  [ -f "$f" ] || { . missing.sh prepare_e2e.sh "$f"; exit 1; }
done
. fewer_jobs.sh
fewer_jobs "$data" utterances
options=(--nj "$nj" ${treedir:+--treedir "$treedir"})
for option in shared_phones type ci_silence tie min_biphone_count min_monophone_count; do options+=("--${option//_/-}=${!option}"); done

$cmd "$dir/log/prepare_e2e.log" pykaldist prepare-flat-start "${options[@]}" $scale_opts "$@" || exit 1
echo "prepare_e2e.sh: $(sed -n 's/^SUMMARY: //p' "$dir/log/prepare_e2e.log"); tree in $dir"
