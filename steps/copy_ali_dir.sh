#!/usr/bin/env bash
# Gives copies of utterances, in other rooms or with noise, the alignments of their originals.
kind=ali what=alignments form=write_binary
. "$(dirname "${BASH_SOURCE[0]}")/../utils/shared/copy_dir.sh"
