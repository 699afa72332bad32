#!/usr/bin/env bash
# Makes PLP and pitch features of a data directory, in jobs.
kind=plp_pitch online=""
. "$(dirname "${BASH_SOURCE[0]}")/../utils/shared/make_feats.sh"
