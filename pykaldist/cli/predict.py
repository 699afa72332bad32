"""Predict what training the published networks takes on GPUs: flops and bytes of a step, frames/s, hours of an epoch. Nothing is measured.

  pykaldist predict                                                       # all networks, on all GPUs that are known
  pykaldist predict --nnets su2015-dnn --gpus h200 --optimizers sgd --ngpu 1,8 --hours 300

The flops and bytes of a training step are counted, in code; the rates are the vendor's. docs/gpu.md has the tables of the first command.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from pykaldist.cli._json import add_json, print_json
from pykaldist.errors import UserError
from pykaldist.nnet.kinds import PRESETS
from pykaldist.optim.registry import FRAME_OPTIMIZERS
from pykaldist.options import add_options, from_args, numbers, option
from pykaldist.parallel.planning.gpus import GPUS, count_presets
from pykaldist.report.predict import as_dict, render

DTYPES = ("float32", "tf32", "bf16")


@dataclass
class PredictOptions:
    """What to predict."""

    nnets: str = option(",".join(name for name in PRESETS if not name.endswith("-small")), "published networks, with commas")
    optimizers: str = option("sgd,ngsgd", "optimisers, with commas; hours are those of the last")
    dtypes: str = option(",".join(DTYPES), "arithmetics, with commas; hours are those of the last")
    gpus: str = option(",".join(GPUS), "GPUs, with commas")
    minibatch_size: int = option(1024, "frames in a minibatch; networks of sequences have their own")
    feat_dim: int = option(40, "bands or coefficients of a frame; convolutional networks see them with two deltas")
    num_pdfs: int = option(8806, "outputs")
    hours: str = option("300,10000", "hours of speech of an epoch, with commas")
    ngpu: str = option("1,8,64,512,4096", "numbers of GPUs, with commas")
    average_period: int = option(10, "minibatches between averages of the models (--strategy ma)")

    def __post_init__(self) -> None:
        for name, known in (("nnets", PRESETS), ("optimizers", FRAME_OPTIMIZERS), ("dtypes", DTYPES), ("gpus", GPUS)):
            for one in getattr(self, name).split(","):
                if one not in known:
                    raise UserError(f"--{name} {getattr(self, name)}: there is no {one!r}; choose among {', '.join(known)}.")
        for name in ("minibatch_size", "feat_dim", "num_pdfs", "average_period"):
            if getattr(self, name) < 1:
                raise UserError(f"--{name.replace('_', '-')} {getattr(self, name)}: expected a positive number.")
        for name in ("hours", "ngpu"):
            if min(numbers(name, getattr(self, name))) <= 0:
                raise UserError(f"--{name} {getattr(self, name)}: expected positive numbers.")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_json(parser)
    add_options(parser, PredictOptions)


def run(args: argparse.Namespace) -> None:
    options: Any = from_args(PredictOptions, args)
    steps = count_presets(options.nnets.split(","), options.optimizers.split(","), options.dtypes.split(","), options.minibatch_size,
                          options.feat_dim, options.num_pdfs)
    predicted = (steps, [GPUS[name] for name in options.gpus.split(",")], numbers("hours", options.hours),
                 [int(n) for n in numbers("ngpu", options.ngpu)], options.average_period)
    if args.json:
        print_json(as_dict(*predicted))
    else:
        print(render(*predicted))
