"""Pretrain a stack of RBMs on a frame store (what steps/nnet/pretrain_dbn.sh runs); run again, it resumes."""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.cli._job import run_job
from pykaldist.options import add_options, add_variants, from_args, pick_variant
from pykaldist.parallel.launch.job import JobOptions
from pykaldist.parallel.strategies.base.registry import make_strategy, strategies, strategy_options, take_preset
from pykaldist.train.dbn import DbnExperiment, DbnOptions
from pykaldist.train.divergence import DivergenceOptions
from pykaldist.train.trainer import TrainerOptions

STRATEGIES = {name: strategy_options(name) for name in strategies()}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("store", type=Path, help="folder with the frame stores train and dev")
    parser.add_argument("exp", type=Path, help="experiment folder to write")
    add_options(parser, DbnOptions)
    add_options(parser, JobOptions, skip=("serial_warmup", "elastic", "replacements"))
    add_options(parser, TrainerOptions)
    add_options(parser, DivergenceOptions)
    add_variants(parser, STRATEGIES)


def run(args: argparse.Namespace) -> int:
    take_preset(vars(args))
    job = from_args(JobOptions, args)
    options, strategy = from_args(DbnOptions, args), pick_variant("strategy", args.strategy, STRATEGIES, args)
    made = make_strategy(job.strategy, strategy)
    job.settle(made)
    return run_job(args, job, made.fault_tolerant,
                   lambda: DbnExperiment(args.store, args.exp, options, job, strategy, from_args(TrainerOptions, args),
                                         from_args(DivergenceOptions, args)))
