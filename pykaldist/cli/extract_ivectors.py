"""Extract the online i-vectors of one job's share of a data directory; see steps/online/nnet2/extract_ivectors_online.sh."""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # jobs are processes; read when numpy is loaded

from pykaldist.hmm.ivector.online import OnlineOptions
from pykaldist.hmm.ivector.posteriors import PosteriorOptions
from pykaldist.hmm.ivector.stages import extract_online_part
from pykaldist.options import add_options, boolean, from_args


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", help="data directory with features")
    parser.add_argument("extractor", help="directory of the extractor")
    parser.add_argument("exp", help="where ivector_online.JOB.ark and .scp go")
    parser.add_argument("--job", type=int, default=1, help="this job, from 1 (default: 1)")
    parser.add_argument("--nj", type=int, default=1, help="number of jobs (default: 1)")
    parser.add_argument("--compress", type=boolean, default=True, help="one byte a value (default: true)")
    parser.add_argument("--use-vad", type=boolean, default=False, help="frames count as the data directory's vad.scp says (default: false)")
    add_options(parser, OnlineOptions)
    add_options(parser, PosteriorOptions)


def run(args: argparse.Namespace) -> None:
    options, posteriors = from_args(OnlineOptions, args), from_args(PosteriorOptions, args)
    print(extract_online_part(args.data, args.extractor, args.exp, options, posteriors, args.job, args.nj, args.compress, args.use_vad))
