"""Train a GMM system further by MMI or boosted MMI, on lattices; see steps/train_mmi.sh."""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # --nj says how many threads work; read when numpy is loaded

from pykaldist.cli._sequence import add_sequence_arguments
from pykaldist.hmm.gmm.ebw import EbwOptions
from pykaldist.hmm.training.jobs import JobsOptions
from pykaldist.options import from_args
from pykaldist.train.gmm_sequence import IterationOptions, Mmi
from pykaldist.train.gmm_sequence_dirs import train_model_dir


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_sequence_arguments(parser, IterationOptions, Mmi)


def run(args: argparse.Namespace) -> None:
    made = train_model_dir("steps/train_mmi.sh", args.data, args.lang, args.ali, args.denlats, args.exp, from_args(Mmi, args),
                           from_args(IterationOptions, args), from_args(EbwOptions, args), args.nj, args.device, args.stage,
                           jobs=from_args(JobsOptions, args))
    print(f"SUMMARY: {made}")
