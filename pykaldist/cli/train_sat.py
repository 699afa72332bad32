"""Train a speaker-adapted GMM system (SAT with fMLLR); see steps/train_sat.sh."""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # --nj says how many threads work; read when numpy is loaded

from pykaldist.hmm.adapted_experiment import train_sat_dir
from pykaldist.hmm.align import AlignOptions
from pykaldist.hmm.fmllr import FmllrOptions
from pykaldist.hmm.sat import SatOptions
from pykaldist.options import add_options, from_args


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("num_leaves", type=int, help="leaves of the decision tree, at most")
    parser.add_argument("tot_gauss", type=int, help="Gaussians in all at the end")
    parser.add_argument("data", help="data directory with features, CMVN statistics and transcripts")
    parser.add_argument("lang", help="language directory")
    parser.add_argument("ali", help="directory of the alignments to start from; its features, and transforms if any, are used")
    parser.add_argument("exp", help="the system's directory")
    parser.add_argument("--nj", type=int, default=1, help="threads, and files of alignments (default: 1)")
    add_options(parser, SatOptions)
    add_options(parser, FmllrOptions)
    add_options(parser, AlignOptions)


def run(args: argparse.Namespace) -> None:
    made = train_sat_dir(args.data, args.lang, args.ali, args.exp, args.num_leaves, args.tot_gauss, from_args(SatOptions, args),
                         from_args(AlignOptions, args), from_args(FmllrOptions, args), args.nj)
    print(f"SUMMARY: {made}")
