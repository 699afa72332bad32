#!/usr/bin/env bash
# Gives copies of utterances, in other rooms or with noise, the lattices of their originals.
kind=lat what=lattices form=write_compact
. "$(dirname "${BASH_SOURCE[0]}")/../utils/shared/copy_dir.sh"
