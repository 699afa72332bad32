#!/usr/bin/env bash
# Makes MFCC and pitch features of a data directory, in jobs; the pitch has one file of options.
kind=mfcc_pitch online=true
. "$(dirname "${BASH_SOURCE[0]}")/../utils/shared/make_feats.sh"
