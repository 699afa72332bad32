"""Train a network on a frame store (what steps/nnet/train.sh runs); run again, it resumes."""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.nnet.dnn import DnnOptions
from pykaldist.optim.schedules import SCHEDULES
from pykaldist.optim.sgd import SgdOptions
from pykaldist.options import add_options, add_variants, from_args, pick_variant
from pykaldist.train.experiment import Experiment, ExperimentOptions
from pykaldist.train.trainer import TrainerOptions

SCHEDULE_OPTIONS = {name: options for name, (options, _) in SCHEDULES.items()}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("store", type=Path, help="folder with the frame stores train and dev")
    parser.add_argument("exp", type=Path, help="experiment folder to write")
    for options in (ExperimentOptions, DnnOptions, SgdOptions, TrainerOptions):
        add_options(parser, options)
    parser.add_argument("--schedule", choices=tuple(SCHEDULES), default="newbob", help="how the rate moves (default: newbob)")
    add_variants(parser, SCHEDULE_OPTIONS)


def run(args: argparse.Namespace) -> None:
    schedule = pick_variant("schedule", args.schedule, SCHEDULE_OPTIONS, args)
    Experiment(args.store, args.exp, from_args(ExperimentOptions, args), from_args(DnnOptions, args), from_args(SgdOptions, args),
               args.schedule, schedule, from_args(TrainerOptions, args)).run()
