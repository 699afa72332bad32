#!/usr/bin/env bash
# Aligns a data directory with a speaker-independent GMM system.
verb=align-si example="exp/mono exp/mono_ali" writes="the alignments ali.*.gz, and copies of the model and its tree"
own=() own_usage=""
. "$(dirname "${BASH_SOURCE[0]}")/../utils/shared/align_gmm.sh"
