"""Train a UBM, one mixture of diagonal Gaussians for all frames, from a GMM system; see steps/train_diag_ubm.sh."""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # --nj says how many threads work; read when numpy is loaded

from pykaldist.cli._gmm import add_device
from pykaldist.hmm.gmm.ubm import UbmOptions
from pykaldist.options import add_options, from_args
from pykaldist.train.gmm_sequence_dirs import train_diag_ubm_dir


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("num_gauss", type=int, help="Gaussians of the UBM")
    parser.add_argument("data", help="data directory with features, CMVN statistics and transcripts")
    parser.add_argument("lang", help="language directory")
    parser.add_argument("ali", help="directory of alignments; its model, features, and transforms if any, are used")
    parser.add_argument("exp", help="directory of the UBM, final.dubm")
    parser.add_argument("--nj", type=int, default=1, help="threads (default: 1)")
    add_device(parser)
    add_options(parser, UbmOptions)


def run(args: argparse.Namespace) -> None:
    made = train_diag_ubm_dir(args.num_gauss, args.data, args.lang, args.ali, args.exp, from_args(UbmOptions, args), args.nj, args.device)
    print(f"SUMMARY: {made}")
