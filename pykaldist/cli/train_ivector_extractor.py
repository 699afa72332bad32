"""Train an i-vector extractor; see steps/online/nnet2/train_ivector_extractor.sh."""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # --nj says how many threads work; read when numpy is loaded

from pykaldist.hmm.ivector.posteriors import PosteriorOptions
from pykaldist.hmm.ivector.stages import ExtractorOptions, extractor_dir
from pykaldist.hmm.training.jobs import ArrayOptions
from pykaldist.options import add_options, from_args


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", help="data directory with features")
    parser.add_argument("ubm", help="directory of the UBM")
    parser.add_argument("exp", help="directory of the extractor, final.ie")
    parser.add_argument("--nj", type=int, default=1, help="threads, or jobs (default: 1)")
    add_options(parser, ExtractorOptions)
    add_options(parser, PosteriorOptions)
    add_options(parser, ArrayOptions)


def run(args: argparse.Namespace) -> None:
    made = extractor_dir(args.data, args.ubm, args.exp, from_args(ExtractorOptions, args), from_args(PosteriorOptions, args), args.nj,
                         jobs=from_args(ArrayOptions, args))
    print(f"SUMMARY: {made}")
