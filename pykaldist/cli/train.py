"""Train a network on a frame store (what steps/nnet/train.sh runs); run again, it resumes."""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.nnet.dnn import DnnOptions
from pykaldist.optim.registry import OPTIMIZERS
from pykaldist.optim.schedules import SCHEDULES
from pykaldist.options import add_options, add_variants, from_args, pick_variant
from pykaldist.train.experiment import Experiment, ExperimentOptions
from pykaldist.train.trainer import TrainerOptions

VARIANTS = {"schedule": {name: options for name, (options, _) in SCHEDULES.items()},
            "optimizer": {name: options for name, (options, _) in OPTIMIZERS.items()}}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("store", type=Path, help="folder with the frame stores train and dev")
    parser.add_argument("exp", type=Path, help="experiment folder to write")
    for options in (ExperimentOptions, DnnOptions, TrainerOptions):
        add_options(parser, options)
    for variants in VARIANTS.values():
        add_variants(parser, variants)


def run(args: argparse.Namespace) -> None:
    schedule, optimizer = (pick_variant(name, getattr(args, name), VARIANTS[name], args) for name in ("schedule", "optimizer"))
    Experiment(args.store, args.exp, from_args(ExperimentOptions, args), from_args(DnnOptions, args), optimizer, schedule,
               from_args(TrainerOptions, args)).run()
