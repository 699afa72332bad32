"""Align a data directory with a subspace model (SGMM) system; see steps/align_sgmm2.sh."""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # --nj says how many threads work; read when numpy is loaded

from pykaldist.hmm.alignments.align import AlignOptions
from pykaldist.hmm.sgmm.experiment import align_sgmm_dir
from pykaldist.hmm.training.jobs import JobsOptions
from pykaldist.options import add_options, from_args


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", help="data directory with features, CMVN statistics and transcripts")
    parser.add_argument("lang", help="language directory")
    parser.add_argument("src", help="directory of the system that aligns")
    parser.add_argument("ali", help="directory of the alignments and speakers' vectors")
    parser.add_argument("--nj", type=int, default=1, help="threads or jobs, and files of alignments (default: 1)")
    parser.add_argument("--transform-dir", help="directory with the speakers' fMLLR transforms, trans.* (default: none)")
    parser.add_argument("--gselect", type=int, default=15, help="Gaussians in a frame (default: 15)")
    add_options(parser, AlignOptions, ("boost_silence",))
    add_options(parser, JobsOptions)


def run(args: argparse.Namespace) -> None:
    args.boost_silence = 1.0
    made = align_sgmm_dir(args.data, args.lang, args.src, args.ali, from_args(AlignOptions, args), args.transform_dir, args.gselect,
                          args.nj, jobs=from_args(JobsOptions, args))
    print(f"SUMMARY: {made}")
