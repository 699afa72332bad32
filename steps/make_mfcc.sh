#!/usr/bin/env bash
# Makes MFCC features of a data directory, in jobs.
kind=mfcc online=""
. "$(dirname "${BASH_SOURCE[0]}")/../utils/shared/make_feats.sh"
