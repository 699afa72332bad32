#!/usr/bin/env bash
# Makes filterbank and pitch features of a data directory, in jobs.
kind=fbank_pitch online=""
. "$(dirname "${BASH_SOURCE[0]}")/../utils/shared/make_feats.sh"
