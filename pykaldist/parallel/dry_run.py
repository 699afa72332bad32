"""How long an epoch takes by the simulated clock, with nothing trained.

Workers without data, whose steps do nothing, go through a strategy's own code, with a model of a few values and links that are as much
slower. Of an epoch of E minibatches a worker, two shorter ones are gone through, of n and of 2 n minibatches:

    T(E) = T(n) + (E - n) (T(2 n) - T(n)) / n,

so that what is done once an epoch counts once. n is a whole number of averaging periods; shards are even.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Generator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.frames.sampler import Sampler
from pykaldist.optim.optimizer import Optimizer
from pykaldist.parallel.cluster import Cluster, Link
from pykaldist.parallel.plan import predict
from pykaldist.parallel.simulation import Simulation
from pykaldist.parallel.strategy import make_strategy, strategy_options
from pykaldist.parallel.worker import Worker

PARAMETERS = 16
MINIBATCHES = 120  # of a worker in the shorter epoch, at least


@dataclass
class NoData:
    """A sampler of minibatches that are frames by number alone."""

    minibatch_size: int
    minibatches: int

    @property
    def frames(self) -> int:
        return self.minibatch_size * self.minibatches

    def epoch(self, epoch: int, start: int = 0) -> Generator[range, int, None]:
        while start < self.minibatches:
            start = (yield range(self.minibatch_size)) or start + 1

    def block_ends(self, epoch: int) -> list[int]:
        return [self.minibatches]


class NoSteps:
    """An optimiser that leaves its model as it is."""

    def __init__(self) -> None:
        self.velocity = torch.zeros(PARAMETERS)
        model = SimpleNamespace(params=torch.zeros(PARAMETERS), device=torch.device("cpu"), statistics=list)
        self.learner = SimpleNamespace(model=model, num_totals=1)

    def set_rate(self, learn_rate: float) -> None:
        pass

    def local_step(self, minibatch: range, learn_rate: float, totals: Tensor) -> None:
        pass

    def gradient(self, minibatch: range, gradient: Tensor, totals: Tensor) -> None:
        gradient.zero_()

    def apply(self, gradient: Tensor, learn_rate: float, frames: int) -> None:
        pass


def epoch_seconds(cluster: Cluster, ngpu: int, strategy: str, options: Any = None) -> float:
    """Simulated seconds of an epoch of the cluster's own workload with `ngpu` workers; `options` of the strategy, or its defaults.

    Raises UserError for onebit, whose messages depend on the model's shape.
    """
    if strategy == "onebit":
        raise UserError("onebit's messages depend on the shape of a model's matrices, of which a cluster file says nothing; give a store "
                        "to train on, or see `pykaldist plan`.")
    options = strategy_options(strategy)() if options is None else options
    work = cluster.workload
    period = options.minibatches(work.minibatch_size) if hasattr(options, "minibatches") else 0
    n = -(-MINIBATCHES // (period or 1)) * (period or 1)
    seconds = functools.partial(_seconds, _shrunk(cluster), ngpu, strategy, options)
    short, long = seconds(n), seconds(2 * n)
    whole = predict(work, cluster, ngpu, "local")  # of what has nothing to do with the strategy
    return short + (work.frames / work.minibatch_size / ngpu - n) * (long - short) / n + whole.score + whole.fixed


def speed_up(cluster: Cluster, ngpu: int, strategy: str, options: Any = None) -> float:
    """Of an epoch over one worker's."""
    return epoch_seconds(cluster, 1, "local") / epoch_seconds(cluster, ngpu, strategy, options)


def _shrunk(cluster: Cluster) -> Cluster:
    """With a model of a few values, links as much slower, and nothing done once an epoch."""
    share = PARAMETERS / cluster.workload.parameters

    def slower(link: Link | None) -> Link | None:
        return link and dataclasses.replace(link, bandwidth=link.bandwidth * share)

    table = cluster.allreduce and dataclasses.replace(cluster.allreduce, bytes=max(1, round(cluster.allreduce.bytes * share)))
    return dataclasses.replace(cluster, workload=dataclasses.replace(cluster.workload, parameters=PARAMETERS, cv_frames=0), sources={},
                               compute=dataclasses.replace(cluster.compute, epoch_seconds=0.0), within=slower(cluster.within),
                               between=slower(cluster.between), allreduce=table)


def _seconds(cluster: Cluster, ngpu: int, strategy: str, options: Any, minibatches: int) -> float:
    """Of an epoch of so many minibatches a worker."""
    host = Simulation(ngpu, cluster, strategy=strategy)
    data = cast(Sampler, NoData(cluster.workload.minibatch_size, minibatches))
    host.workers = [Worker(cast(Optimizer, NoSteps()), data) for _ in range(ngpu)]
    for worker in host.workers:
        worker.begin_epoch(0, 0.0)
    host.begin_epoch()
    host.run([make_strategy(strategy, options).epoch(worker, fabric) for worker, fabric in zip(host.workers, host.fabrics, strict=True)])
    return host.elapsed()
