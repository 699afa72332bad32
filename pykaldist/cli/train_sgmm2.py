"""Train a subspace Gaussian mixture model (SGMM) system; see steps/train_sgmm2.sh."""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # --nj says how many threads work; read when numpy is loaded

from pykaldist.hmm.alignments.align import AlignOptions
from pykaldist.hmm.sgmm.experiment import train_sgmm_dir
from pykaldist.hmm.sgmm.training import SgmmOptions
from pykaldist.hmm.sgmm.update import UpdateOptions
from pykaldist.hmm.training.jobs import JobsOptions
from pykaldist.options import add_options, from_args


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("num_leaves", type=int, help="leaves of the decision tree, at most")
    parser.add_argument("num_substates", type=int, help="substates in all at the end")
    parser.add_argument("data", help="data directory with features, CMVN statistics and transcripts")
    parser.add_argument("lang", help="language directory")
    parser.add_argument("ali", help="directory of the alignments to start from; its features, and transforms if any, are used")
    parser.add_argument("ubm", help="UBM with full covariances, such as exp/ubm4a/final.ubm")
    parser.add_argument("exp", help="the system's directory")
    parser.add_argument("--nj", type=int, default=1, help="threads or jobs, and files of alignments (default: 1)")
    for cls in (SgmmOptions, AlignOptions, UpdateOptions, JobsOptions):
        add_options(parser, cls, ("boost_silence",))


def run(args: argparse.Namespace) -> None:
    args.boost_silence = 1.0
    made = train_sgmm_dir(args.num_leaves, args.num_substates, args.data, args.lang, args.ali, args.ubm, args.exp,
                          from_args(SgmmOptions, args), from_args(AlignOptions, args), from_args(UpdateOptions, args), args.nj,
                          jobs=from_args(JobsOptions, args))
    print(f"SUMMARY: {made}")
