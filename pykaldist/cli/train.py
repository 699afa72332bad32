"""Train a network on a frame store (what steps/nnet/train.sh runs); run again, it resumes."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

from pykaldist.cli._job import run_job
from pykaldist.errors import UserError
from pykaldist.nnet.init import INITS
from pykaldist.nnet.kinds import KINDS, PRESETS, default_init
from pykaldist.nnet.nnet3.presets import PRESETS as NETWORKS
from pykaldist.nnet.nnet3.presets import PresetOptions
from pykaldist.nnet.objectives import OBJECTIVES
from pykaldist.optim.nnet3 import Nnet3
from pykaldist.optim.registry import OPTIMIZERS, SCHEDULES
from pykaldist.options import add_options, add_variants, from_args, pick_variant
from pykaldist.parallel.launch.job import JobOptions, started_by
from pykaldist.parallel.strategies.base.registry import make_strategy, strategies, strategy_options, take_preset
from pykaldist.train.chain_experiment import ChainExperiment, ChainExperimentOptions
from pykaldist.train.divergence import DivergenceOptions
from pykaldist.train.experiment import Choices, Experiment, ExperimentOptions
from pykaldist.train.frame_experiment import (
    FrameExperiment,
    FrameExperimentOptions,
    RecurrentExperiment,
    RecurrentExperimentOptions,
)
from pykaldist.train.nnet3_experiment import Nnet3Choices, Nnet3Experiment
from pykaldist.train.preset_network import preset_network_of, write_preset_network
from pykaldist.train.trainer import TrainerOptions

DEFAULT_NNET = "dnn"
RECURRENT = "xent of recurrent nnet3 networks"
CHAIN, FRAMES = "chain", "xent"  # the objectives of nnet3 networks, whose minibatches, start and result are others
OF_NNET3 = ("objective", "optimizer", "schedule", "randomizer_seed", "dtype")  # the options of ExperimentOptions that they have too
OF_PRESETS = ("hid_layers", "hid_dim", "bottleneck_dim", "xent_regularize")  # the options of networks by name; the last is training's, too
VARIANTS = {"nnet": {name: kind.options for name, kind in KINDS.items()},
            "init": INITS,
            "objective": {**{name: objective.options_class for name, objective in OBJECTIVES.items()}, CHAIN: ChainExperimentOptions},
            "schedule": {name: options for name, (options, _) in SCHEDULES.items()},
            "optimizer": {name: options for name, (options, _) in OPTIMIZERS.items()},
            "strategy": {name: strategy_options(name) for name in strategies()}}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("store", type=Path, help="folder with the frame stores train and dev")
    parser.add_argument("exp", type=Path, help="experiment folder to write")
    parser.add_argument("--nnet", choices=(*KINDS, *PRESETS, *NETWORKS), default=DEFAULT_NNET,
                        help=f"the network, or a published one; of --objective chain: {', '.join(NETWORKS)} (default: {DEFAULT_NNET})")
    for options in (ExperimentOptions, JobOptions, TrainerOptions, DivergenceOptions):
        add_options(parser, options)
    for name, variants in VARIANTS.items():
        add_variants(parser, {**variants, RECURRENT: RecurrentExperimentOptions} if name == "objective" else variants)


def run(args: argparse.Namespace) -> int:
    take_preset(vars(args))
    if args.objective == CHAIN:
        return run_nnet3(args, ChainExperiment, VARIANTS["objective"])
    if args.objective == FRAMES and args.optimizer == Nnet3.name:
        recurrent = hasattr(args, "chunk_width")
        experiment, options = (RecurrentExperiment, RecurrentExperimentOptions) if recurrent else (FrameExperiment, FrameExperimentOptions)
        return run_nnet3(args, experiment, {**VARIANTS["objective"], FRAMES: options})
    return run_frames(args)


def run_nnet3(args: argparse.Namespace, experiment: type[Nnet3Experiment], objectives: dict[str, type]) -> int:
    """Train an nnet3 network by an objective; `objectives` are the options of all objectives by their names."""
    own = {field.name for field in dataclasses.fields(objectives[args.objective])}
    if args.objective == CHAIN and args.nnet in NETWORKS:
        _take_network(args)
    others = [field for field in dataclasses.fields(ExperimentOptions) if field.name not in OF_NNET3]
    given = [field.name for field in others if getattr(args, field.name) != field.default and field.name not in own]
    given += [field.name for name in ("nnet", "init") for options in VARIANTS[name].values() for field in dataclasses.fields(options)
              if hasattr(args, field.name) and field.name not in own]
    if given or args.nnet != DEFAULT_NNET:
        raise UserError(f"--{(given or ['nnet'])[0].replace('_', '-')} is not used by --objective {args.objective} with an nnet3 network, "
                        "which is --initial-model; leave it out.")
    if args.optimizer != Nnet3.name:
        raise UserError(f"--optimizer {args.optimizer}: --objective {args.objective} trains nnet3 networks; add --optimizer nnet3.")
    if args.minibatch_size is None:
        del args.minibatch_size  # the objective's default
    variants = {**VARIANTS, "objective": objectives}
    optimizer, schedule, strategy, objective = (pick_variant(name, getattr(args, name), variants[name], args)
                                                for name in ("optimizer", "schedule", "strategy", "objective"))
    job = from_args(JobOptions, args)
    choices = Nnet3Choices(objective, job, strategy, args.optimizer, optimizer, args.schedule, schedule, args.randomizer_seed, args.dtype,
                           from_args(TrainerOptions, args), from_args(DivergenceOptions, args))
    made = make_strategy(job.strategy, strategy)
    job.settle(made)
    return run_job(args, job, made.fault_tolerant or job.elastic, lambda: experiment(args.store, args.exp, choices))


def _take_network(args: argparse.Namespace) -> None:
    """Make the network of a preset, and put it in the place of the preset's name and options."""
    if hasattr(args, "initial_model"):
        raise UserError(f"--nnet {args.nnet} --initial-model {args.initial_model}: either is the network; leave one out.")
    options = PresetOptions(**{name: getattr(args, name) for name in OF_PRESETS if hasattr(args, name)})
    path = write_preset_network(args.nnet, options, args.store, args.exp, args.seed) if started_by() is None else \
        preset_network_of(args.nnet, args.exp)
    for name in OF_PRESETS[:-1]:
        vars(args).pop(name, None)
    args.initial_model, args.nnet, args.seed = str(path), DEFAULT_NNET, ExperimentOptions.seed


def run_frames(args: argparse.Namespace) -> int:
    """Train a network on frames, sequences or lattices."""
    if args.nnet in NETWORKS:
        raise UserError(f"--nnet {args.nnet} is a network of chain training; add --objective chain --optimizer nnet3, or choose among "
                        f"{', '.join((*KINDS, *PRESETS))}.")
    kind, preset = PRESETS.get(args.nnet, (args.nnet, {}))
    for name, value in preset.items():
        vars(args).setdefault(name, value)
    nnet = pick_variant("nnet", kind, VARIANTS["nnet"], args)
    chosen = args.init or default_init(nnet)
    init = pick_variant("init", chosen, VARIANTS["init"], args)
    if args.dbn and (args.init or init != INITS[chosen]()):
        raise UserError("--dbn and the options of --init exclude each other: the hidden layers start from the DBN.")
    optimizer, schedule, strategy, objective = (pick_variant(name, getattr(args, name), VARIANTS[name], args)
                                                for name in ("optimizer", "schedule", "strategy", "objective"))
    job = from_args(JobOptions, args)
    choices = Choices(from_args(ExperimentOptions, args, init=chosen), job, strategy, nnet, init, optimizer,
                      schedule, objective, from_args(TrainerOptions, args), from_args(DivergenceOptions, args))
    made = make_strategy(job.strategy, strategy)
    job.settle(made)
    return run_job(args, job, made.fault_tolerant or job.elastic, lambda: Experiment(args.store, args.exp, choices))
