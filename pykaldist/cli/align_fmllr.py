"""Align a data directory with a speaker-adapted GMM system; see steps/align_fmllr.sh."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # --nj says how many threads work; read when numpy is loaded

from pykaldist.cli._fmllr import add_basis, fmllr_options
from pykaldist.cli._gmm import add_device
from pykaldist.hmm.adaptation.fmllr import FmllrOptions
from pykaldist.hmm.alignments.align import AlignOptions
from pykaldist.hmm.training.adapted_experiment import align_fmllr_dir
from pykaldist.hmm.training.jobs import JobsOptions
from pykaldist.options import add_options, from_args


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", help="data directory with features, CMVN statistics and transcripts")
    parser.add_argument("lang", help="language directory")
    parser.add_argument("src", help="directory of the system that aligns")
    parser.add_argument("ali", help="directory of the alignments and transforms")
    parser.add_argument("--nj", type=int, default=1, help="threads, and files of alignments and transforms (default: 1)")
    add_device(parser)
    parser.add_argument("--stage", type=int, default=0, help="what to go on with of an interrupted alignment: 2: its first alignment, 3: "
                        "its transforms; below: neither (default: 0)")
    add_options(parser, AlignOptions)
    add_options(parser, JobsOptions)
    add_options(parser, FmllrOptions)
    add_basis(parser)


def run(args: argparse.Namespace) -> None:
    made = align_fmllr_dir(args.data, args.lang, args.src, args.ali, from_args(AlignOptions, args), fmllr_options(args, Path(args.src)),
                           args.nj, device=args.device, stage=args.stage, jobs=from_args(JobsOptions, args))
    print(f"SUMMARY: {made}")
