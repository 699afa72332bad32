"""Train a subspace model (SGMM) system further by MMI or boosted MMI, on lattices; see steps/train_mmi_sgmm2.sh."""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # --nj says how many threads work; read when numpy is loaded

from pykaldist.cli._gmm import add_stage
from pykaldist.hmm.sgmm.discriminative import SgmmEbwOptions
from pykaldist.hmm.training.jobs import JobsOptions
from pykaldist.options import add_options, from_args
from pykaldist.train.gmm_sequence import IterationOptions, Mmi
from pykaldist.train.sgmm_sequence import train_sgmm_mmi_dir


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", help="data directory with features, CMVN statistics and transcripts")
    parser.add_argument("lang", help="language directory")
    parser.add_argument("ali", help="directory of the reference's alignments; its model, features and speakers' vectors are used")
    parser.add_argument("denlats", help="lattice store (pykaldist pack-lattices)")
    parser.add_argument("exp", help="the system's directory")
    parser.add_argument("--nj", type=int, default=1, help="threads, or jobs (default: 1)")
    parser.add_argument("--transform-dir", help="directory with the speakers' fMLLR transforms, trans.* (default: none)")
    add_stage(parser)
    for cls in (IterationOptions, Mmi, SgmmEbwOptions, JobsOptions):
        add_options(parser, cls)


def run(args: argparse.Namespace) -> None:
    made = train_sgmm_mmi_dir(args.data, args.lang, args.ali, args.denlats, args.exp, from_args(Mmi, args),
                              from_args(IterationOptions, args), from_args(SgmmEbwOptions, args), args.transform_dir, args.nj, args.stage,
                              jobs=from_args(JobsOptions, args))
    print(f"SUMMARY: {made}")
