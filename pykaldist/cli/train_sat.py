"""Train a speaker-adapted GMM system (SAT with fMLLR); see steps/train_sat.sh."""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # --nj says how many threads work; read when numpy is loaded

from pykaldist.cli._gmm import add_training_arguments
from pykaldist.hmm.adaptation.fmllr import FmllrOptions
from pykaldist.hmm.alignments.align import AlignOptions
from pykaldist.hmm.training.adapted_experiment import train_sat_dir
from pykaldist.hmm.training.jobs import JobsOptions
from pykaldist.hmm.training.sat import SatOptions
from pykaldist.options import add_options, from_args


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_training_arguments(parser, SatOptions, "; its features, and transforms if any, are used")
    add_options(parser, FmllrOptions)


def run(args: argparse.Namespace) -> None:
    made = train_sat_dir(args.data, args.lang, args.ali, args.exp, args.num_leaves, args.tot_gauss, from_args(SatOptions, args),
                         from_args(AlignOptions, args), from_args(FmllrOptions, args), args.nj,
                         device=args.device, stage=args.stage, jobs=from_args(JobsOptions, args))
    print(f"SUMMARY: {made}")
