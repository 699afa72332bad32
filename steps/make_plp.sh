#!/usr/bin/env bash
# Makes PLP features of a data directory, in jobs.
kind=plp online=""
. "$(dirname "${BASH_SOURCE[0]}")/../utils/shared/make_feats.sh"
