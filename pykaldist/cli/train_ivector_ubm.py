"""Train the UBM of i-vectors on features alone; see steps/online/nnet2/train_diag_ubm.sh."""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # --nj says how many threads work; read when numpy is loaded

from pykaldist.cli._gmm import add_device
from pykaldist.hmm.ivector.stages import DiagUbmOptions, diag_ubm_dir
from pykaldist.hmm.training.jobs import ArrayOptions
from pykaldist.options import add_options, from_args


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", help="data directory with features and CMVN statistics")
    parser.add_argument("num_gauss", type=int, help="Gaussians of the UBM")
    parser.add_argument("src", help="directory with final.mat and splice_opts")
    parser.add_argument("exp", help="directory of the UBM, final.dubm")
    parser.add_argument("--online-cmvn-config", default="conf/online_cmvn.conf",
                        help="options of online CMVN (default: conf/online_cmvn.conf)")
    parser.add_argument("--nj", type=int, default=1, help="threads, or jobs (default: 1)")
    add_device(parser)
    add_options(parser, DiagUbmOptions)
    add_options(parser, ArrayOptions)


def run(args: argparse.Namespace) -> None:
    made = diag_ubm_dir(args.data, args.num_gauss, args.src, args.exp, from_args(DiagUbmOptions, args), args.online_cmvn_config, args.nj,
                        args.device, jobs=from_args(ArrayOptions, args))
    print(f"SUMMARY: {made}")
