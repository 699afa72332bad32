"""Train a UBM, one mixture of Gaussians with full covariances for all frames, from a GMM system; see steps/train_ubm.sh."""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # --nj says how many threads work; read when numpy is loaded

from pykaldist.hmm.gmm.ubm import UbmOptions
from pykaldist.hmm.sgmm.experiment import train_ubm_dir
from pykaldist.options import add_options, boolean, from_args


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("num_gauss", type=int, help="Gaussians of the UBM")
    parser.add_argument("data", help="data directory with features, CMVN statistics and transcripts")
    parser.add_argument("lang", help="language directory")
    parser.add_argument("ali", help="directory of alignments; its model, features, and transforms if any, are used")
    parser.add_argument("exp", help="directory of the UBM, final.ubm")
    parser.add_argument("--nj", type=int, default=1, help="threads (default: 1)")
    parser.add_argument("--num-gselect", type=int, default=25, help="Gaussians that a frame is divided among (default: 25)")
    parser.add_argument("--no-fmllr", type=boolean, default=False, help="leave the transforms of <ali> out (default: false)")
    add_options(parser, UbmOptions)


def run(args: argparse.Namespace) -> None:
    made = train_ubm_dir(args.num_gauss, args.data, args.lang, args.ali, args.exp, from_args(UbmOptions, args), args.num_gselect,
                         args.no_fmllr, args.nj)
    print(f"SUMMARY: {made}")
