#!/usr/bin/env bash
# Makes a table of Chen & Huo (2016) or of IBM (2019): trains and scores what it needs, and prints the papers' values beside those obtained.
paper="Chen & Huo (2016), and of IBM (2019)" example=chen3
tables="  chen1 DBLSTM on Switchboard by chunks (CSC-BPTT)   chen2 the same by whole utterances   chen3 DNN on all, 1 to 64 GPUs
  chen4 its minutes a sweep   ibm LSTM: hours and WER   ibm-batch held-out loss by global batches of 4,096 to 12,288"
default_sets() { local set; for set in eval2000 rt03; do [ ! -d data/$set ] || echo $set; done; }
more_options() {
  more=(--rbm "$2" --nnet-opts "")
  case $1 in
    csc-*) more+=(--part swbd --forward-opts "--forward chunks") ;;  # which overlap by 32 frames in decoding
    whole-*) more+=(--part swbd) ;;
  esac
}
. "$(dirname "${BASH_SOURCE[0]}")/../utils/shared/tables.sh"
