"""Train a GMM system that begins with the mixtures of an earlier one; see steps/train_quick.sh."""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # --nj says how many threads work; read when numpy is loaded

from pykaldist.cli._gmm import add_training_arguments
from pykaldist.hmm.alignments.align import AlignOptions
from pykaldist.hmm.training.adapted_experiment import train_quick_dir
from pykaldist.hmm.training.jobs import JobsOptions
from pykaldist.hmm.training.quick import QuickOptions
from pykaldist.options import from_args


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_training_arguments(parser, QuickOptions, "; its features, and transforms if any, are used")


def run(args: argparse.Namespace) -> None:
    made = train_quick_dir(args.data, args.lang, args.ali, args.exp, args.num_leaves, args.tot_gauss, from_args(QuickOptions, args),
                           from_args(AlignOptions, args), args.nj, device=args.device, stage=args.stage, jobs=from_args(JobsOptions, args))
    print(f"SUMMARY: {made}")
