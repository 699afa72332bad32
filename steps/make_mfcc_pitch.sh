#!/usr/bin/env bash
# Makes MFCC and pitch features of a data directory, in jobs.
kind=mfcc_pitch online=""
. "$(dirname "${BASH_SOURCE[0]}")/../utils/shared/make_feats.sh"
