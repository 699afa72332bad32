#!/usr/bin/env bash
# Makes a table of Su, Chen & Xu (2015): trains and scores what it needs, and prints the paper's values beside those obtained.
paper="Su, Chen & Xu (2015)" example=6
tables="  1 GPUs, 1 to 32   2 RBMs or random weights   3 averaging period 10 or 20   4 minibatches of 256 or 1,024
  5 newbob or exponential schedule   6 SGD or NG-SGD"
default_sets() { if [ "$table" = 1 ] && [ -d data/eval2001 ]; then echo eval2000 eval2001; else echo eval2000; fi; }
more_options() { more=(--rbm "$2"); }
. "$(dirname "${BASH_SOURCE[0]}")/../utils/shared/tables.sh"
