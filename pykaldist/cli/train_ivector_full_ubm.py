"""Train a UBM of i-vectors with full covariances; see steps/online/nnet2/train_full_ubm.sh."""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # --nj says how many threads work; read when numpy is loaded

from pykaldist.hmm.ivector.stages import FullUbmOptions, full_ubm_dir
from pykaldist.hmm.training.jobs import ArrayOptions
from pykaldist.options import add_options, from_args


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", help="data directory with features")
    parser.add_argument("ubm", help="directory of the UBM to begin with, diagonal or full")
    parser.add_argument("exp", help="directory of the UBM, final.ubm")
    parser.add_argument("--nj", type=int, default=1, help="threads, or jobs (default: 1)")
    add_options(parser, FullUbmOptions)
    add_options(parser, ArrayOptions)


def run(args: argparse.Namespace) -> None:
    made = full_ubm_dir(args.data, args.ubm, args.exp, from_args(FullUbmOptions, args), args.nj, jobs=from_args(ArrayOptions, args))
    print(f"SUMMARY: {made}")
