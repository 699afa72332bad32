"""Train a UBM, one mixture of diagonal Gaussians for all frames, from a GMM system; see steps/train_diag_ubm.sh."""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # --nj says how many threads work; read when numpy is loaded

from pykaldist.cli._gmm import add_device, add_ubm_arguments
from pykaldist.hmm.gmm.ubm import UbmOptions
from pykaldist.hmm.training.jobs import JobsOptions
from pykaldist.options import from_args
from pykaldist.train.gmm_sequence_dirs import train_diag_ubm_dir


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_ubm_arguments(parser, "final.dubm")
    add_device(parser)


def run(args: argparse.Namespace) -> None:
    made = train_diag_ubm_dir(args.num_gauss, args.data, args.lang, args.ali, args.exp, from_args(UbmOptions, args), args.nj, args.device,
                              jobs=from_args(JobsOptions, args))
    print(f"SUMMARY: {made}")
