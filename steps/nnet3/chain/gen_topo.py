#!/usr/bin/env bash
# Prints the topology of chain (LF-MMI) models: one state a phone, whose self-loop has a pdf of its own.

usage() {
  cat <<EOF
Usage: steps/nnet3/chain/gen_topo.py <nonsilence-phones> <silence-phones> > <topo>
 e.g.: steps/nnet3/chain/gen_topo.py \$(cat lang/phones/nonsilence.csl) \$(cat lang/phones/silence.csl) > lang/topo
Phones are numbers with colons between them, as in phones/nonsilence.csl and phones/silence.csl of a language directory.
EOF
}

[ -f path.sh ] && . ./path.sh
case "${1:-}" in --help | -h) usage; exit 0 ;; "") usage >&2; exit 1 ;; esac
. say_what.sh
topology=$(pykaldist chain-topology "$@") || end_with $?
echo "$topology"
