#!/usr/bin/env bash
# Makes log mel filterbank features of a data directory, in jobs.
kind=fbank online=""
. "$(dirname "${BASH_SOURCE[0]}")/../utils/shared/make_feats.sh"
