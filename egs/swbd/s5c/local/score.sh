#!/usr/bin/env bash
# Scores a decode directory as this recipe does: by NIST's sclite where the test set has a reference for it, else by steps/score_kaldi.sh.
[ -f path.sh ] && . ./path.sh
usage() { echo "Usage: local/score.sh [options of steps/score_sclite.sh] <data-dir> <lang-dir|graph-dir> <decode-dir>"; }
[ $# -ge 3 ] || { usage >&2; exit 1; }
[ -f "${*: -3:1}/stm" ] || exec steps/score_kaldi.sh "$@"
exec steps/score_sclite.sh --subsets local/subsets.tsv --not-scored local/not_scored.tsv --acronyms data/local/dict/acronyms.txt "$@"
