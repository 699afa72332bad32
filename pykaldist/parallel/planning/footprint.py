"""The memory that a strategy takes beside its workers, in copies of the model, counted in a dry run.

The strategy's own code runs for a few workers of a tiny model in one process, and every tensor that is made meanwhile is counted while it
lives. With two numbers of workers this tells what each worker takes from what a process takes once:

    copies(n) = a n + b.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from pykaldist.errors import UserError
from pykaldist.parallel.clusters.cluster import Cluster
from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.engines.simulation import Simulation
from pykaldist.parallel.fabric.interface import Begin
from pykaldist.parallel.planning.dry_run import SHAPE, tiny_workers
from pykaldist.parallel.strategies.base.strategy import Strategy

LEAST = 4  # workers, or groups of workers that exchange as one: a power of two, for strategies of pairs
CYCLES = 4  # of a strategy in an epoch: its first exchange has no remainders of one before, and its last is made in full
CLUSTER = "v100-ethernet"


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of the storages that operations make while the mode is on; `peak` is the most that lived at once."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._known: dict[int, weakref.finalize[Any, Any]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {leaf.untyped_storage()._cdata for leaf in tree_iter((args, kwargs or {})) if isinstance(leaf, torch.Tensor)}
        result = func(*args, **(kwargs or {}))
        for leaf in tree_iter(result):
            if isinstance(leaf, torch.Tensor):
                storage = leaf.untyped_storage()
                if storage._cdata not in given and storage._cdata not in self._known:
                    self._known[storage._cdata] = weakref.finalize(storage, self._gone, storage._cdata, storage.nbytes())
                    self.live += storage.nbytes()
                    self.peak = max(self.peak, self.live)
        return result

    def _gone(self, key: int, size: int) -> None:
        del self._known[key]
        self.live -= size


class _AtOnce(Host):
    """A host that makes exchanges in the background when they are begun, in the thread in which bytes are counted."""

    def _begin(self, requests: list[Begin]) -> list[int]:
        self._last_ticket += 1
        self._begun[self._last_ticket] = Future()
        self._begun[self._last_ticket].set_result(self.run([r.exchange for r in requests]))
        return [self._last_ticket] * len(requests)


def model_copies(make: Callable[[], Strategy], workers: int, ngpu: int, node_size: int, minibatch_size: int) -> float:
    """Copies of the model that a process with so many of a job's `ngpu` workers takes for its strategy and its exchanges.

    `make` makes the strategy of a worker. `node_size`: the workers of a node, 0 where nodes differ in it.
    """
    if ngpu == 1:
        return 0.0
    group = len(make().lost_with(0, ngpu, node_size))
    count, few = LEAST * group, None
    while few is None:
        try:
            few = _peak(make, count, group, minibatch_size)
        except UserError:  # the strategy's options do not allow so few workers
            if count >= ngpu:
                raise
            count *= 2
    each = max(0.0, _peak(make, 2 * count, group, minibatch_size) - few) / count
    return max(0.0, few - count * each) + workers * each


def _peak(make: Callable[[], Strategy], workers: int, group: int, minibatch_size: int) -> float:
    """Copies of the model, at most, in an epoch of so many workers in one process, with the workers of a group on a node."""
    own = [make() for _ in range(workers)]
    host = Simulation(workers, Cluster.read(CLUSTER)) if own[0].independent else _AtOnce(workers)
    for fabric in host.fabrics:
        fabric.node_size = group
    host.workers = tiny_workers(minibatch_size, workers, CYCLES * own[0].cycle(workers, minibatch_size), [SHAPE], blocks=CYCLES)
    with LiveBytes() as counted:
        host.run([one.epoch(worker, fabric) for one, worker, fabric in zip(own, host.workers, host.fabrics, strict=True)])
    return counted.peak / (math.prod(SHAPE) * torch.float32.itemsize)
