"""Train a UBM, one mixture of Gaussians with full covariances for all frames, from a GMM system; see steps/train_ubm.sh."""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # --nj says how many threads work; read when numpy is loaded

from pykaldist.cli._gmm import add_ubm_arguments
from pykaldist.hmm.gmm.ubm import UbmOptions
from pykaldist.hmm.sgmm.experiment import train_ubm_dir
from pykaldist.hmm.training.jobs import JobsOptions
from pykaldist.options import boolean, from_args


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_ubm_arguments(parser, "final.ubm")
    parser.add_argument("--num-gselect", type=int, default=25, help="Gaussians that a frame is divided among (default: 25)")
    parser.add_argument("--no-fmllr", type=boolean, default=False, help="leave the transforms of <ali> out (default: false)")


def run(args: argparse.Namespace) -> None:
    made = train_ubm_dir(args.num_gauss, args.data, args.lang, args.ali, args.exp, from_args(UbmOptions, args), args.num_gselect,
                         args.no_fmllr, args.nj, jobs=from_args(JobsOptions, args))
    print(f"SUMMARY: {made}")
