"""Whether the workers of a process compute together, as a stack (`parallel/fabric/stack.py`), or one after the other."""

from __future__ import annotations

from typing import Any

import torch

from pykaldist.errors import UserError
from pykaldist.nnet.dnn import DnnOptions
from pykaldist.nnet.kinds import kind_of
from pykaldist.nnet.objective import CrossEntropy
from pykaldist.optim.optimizer import OptimizerOptions
from pykaldist.optim.sgd import Sgd
from pykaldist.parallel.launch.job import JobOptions
from pykaldist.parallel.strategies.base.strategy import Strategy

# Parameters of a model times frames of a minibatch, up to which workers on a GPU compute together by themselves: a step of 1.6 GFLOP (6 a
# product). It was not measured. Larger ones fill the GPU by themselves, and a stack takes the activations of each worker.
MOST_ON_GPU = 260_000_000


def check(job: JobOptions, *others: Any) -> bool:
    """Whether the workers of these options can compute together, and shall, or may, for `--stack-workers`; `others` as in `obstacle`.

    Raises UserError where they shall and cannot.
    """
    found = obstacle(job, *others)
    if found and job.stack_workers == "true":
        raise UserError(f"--stack-workers true: {found}; leave it at auto.")
    return not found and job.stack_workers != "false"


def obstacle(job: JobOptions, strategy: Strategy, nnet: Any, objective: str, dtype: str, optimizer: str, options: OptimizerOptions) -> str:
    """What keeps the workers of these options from computing together, in words; empty where nothing does."""
    if job.cluster:
        return f"the workers of --cluster {job.cluster} compute when their simulated time has come"
    if strategy.independent:
        return f"the workers of --strategy {job.strategy} do not compute in step"
    if strategy.reads_all:
        return "of a growing number of workers not all have minibatches"
    if job.deterministic:
        return "--deterministic true takes the sums of one model's products in an order of its own"
    if not isinstance(nnet, DnnOptions):
        return f"--nnet {kind_of(nnet)} cannot be stacked, only dnn"
    if nnet.dropout:
        return f"--dropout {nnet.dropout:g} cannot be stacked, as its random numbers are each worker's own"
    if nnet.batch_norm:
        return "--batch-norm true cannot be stacked, as its means are each worker's own"
    if objective != CrossEntropy.name:
        return f"--objective {objective} cannot be stacked, only {CrossEntropy.name}"
    if dtype == "bf16":
        return "--dtype bf16 cannot be stacked, only one whose products are of the type of their factors"
    if optimizer != Sgd.name:
        return f"--optimizer {optimizer} cannot be stacked, only {Sgd.name}"
    if options.max_change or options.max_param_change:
        return "--max-change and --max-param-change cannot be stacked, as they measure each worker's step"
    return ""


def by_itself(parameters: int, minibatch_size: int, device: torch.device) -> bool:
    """Whether workers whose models have so many parameters compute together where nobody says so.

    On a CPU they do not: it would change the last bits of what they compute one after the other.
    """
    return device.type == "cuda" and parameters * minibatch_size <= MOST_ON_GPU
