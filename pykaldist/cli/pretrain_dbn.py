"""Pretrain a stack of RBMs on a frame store (what steps/nnet/pretrain_dbn.sh runs); run again, it resumes."""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.options import add_options, from_args
from pykaldist.train.dbn import DbnExperiment, DbnOptions
from pykaldist.train.trainer import TrainerOptions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("store", type=Path, help="folder with the frame stores train and dev")
    parser.add_argument("exp", type=Path, help="experiment folder to write")
    for options in (DbnOptions, TrainerOptions):
        add_options(parser, options)


def run(args: argparse.Namespace) -> None:
    DbnExperiment(args.store, args.exp, from_args(DbnOptions, args), from_args(TrainerOptions, args)).run()
