"""Align a data directory with a speaker-independent GMM system; see steps/align_si.sh."""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # --nj says how many threads work; read when numpy is loaded

from pykaldist.cli._gmm import add_device
from pykaldist.hmm.alignments.align import AlignOptions
from pykaldist.hmm.training.experiment import align_dir
from pykaldist.hmm.training.jobs import JobsOptions
from pykaldist.options import add_options, from_args


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", help="data directory with features, CMVN statistics and transcripts")
    parser.add_argument("lang", help="language directory")
    parser.add_argument("src", help="directory of the system that aligns")
    parser.add_argument("ali", help="directory of the alignments")
    parser.add_argument("--nj", type=int, default=1, help="threads, and files of alignments (default: 1)")
    add_device(parser)
    add_options(parser, AlignOptions)
    add_options(parser, JobsOptions)


def run(args: argparse.Namespace) -> None:
    made = align_dir(args.data, args.lang, args.src, args.ali, from_args(AlignOptions, args), args.nj, device=args.device,
                     jobs=from_args(JobsOptions, args))
    print(f"SUMMARY: {made}")
