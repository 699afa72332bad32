"""Train a network on a frame store (what steps/nnet/train.sh runs); run again, it resumes."""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.nnet.dnn import DnnOptions
from pykaldist.nnet.init import INITS, OF_ACTIVATION
from pykaldist.optim.registry import OPTIMIZERS
from pykaldist.optim.schedules import SCHEDULES
from pykaldist.options import add_options, add_variants, from_args, pick_variant
from pykaldist.train.experiment import Experiment, ExperimentOptions
from pykaldist.train.trainer import TrainerOptions

VARIANTS = {"init": INITS,
            "schedule": {name: options for name, (options, _) in SCHEDULES.items()},
            "optimizer": {name: options for name, (options, _) in OPTIMIZERS.items()}}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("store", type=Path, help="folder with the frame stores train and dev")
    parser.add_argument("exp", type=Path, help="experiment folder to write")
    for options in (ExperimentOptions, DnnOptions, TrainerOptions):
        add_options(parser, options)
    for variants in VARIANTS.values():
        add_variants(parser, variants)


def run(args: argparse.Namespace) -> None:
    chosen = args.init or OF_ACTIVATION[args.activation]
    init = pick_variant("init", chosen, VARIANTS["init"], args)
    if args.dbn and (args.init or init != INITS[chosen]()):
        raise UserError("--dbn and the options of --init exclude each other: the hidden layers start from the DBN.")
    optimizer, schedule = (pick_variant(name, getattr(args, name), VARIANTS[name], args) for name in ("optimizer", "schedule"))
    Experiment(args.store, args.exp, from_args(ExperimentOptions, args, init=chosen), from_args(DnnOptions, args), init, optimizer,
               schedule, from_args(TrainerOptions, args)).run()
