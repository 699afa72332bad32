"""The memory that a strategy takes beside its workers, in copies of the model, counted in a dry run.

The strategy's own code runs for a few workers of a tiny model in one process, and every tensor that is made meanwhile is counted while it
lives. With two numbers of workers this tells what each worker takes from what a process takes once:

    copies(n) = a n + b.
"""

from __future__ import annotations

import math
import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from pykaldist.parallel.clusters.cluster import Cluster
from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.engines.simulation import Simulation
from pykaldist.parallel.planning.dry_run import SHAPE, tiny_workers
from pykaldist.parallel.strategies.base.registry import make_strategy

WORKERS = 4, 8  # powers of two, for strategies of pairs and groups
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


def model_copies(strategy: str, options: Any, workers: int, ngpu: int) -> float:
    """Copies of the model that a process with so many of a job's `ngpu` workers takes for its strategy and its exchanges."""
    if ngpu == 1:
        return 0.0
    few, many = (_peak(strategy, options, count) for count in WORKERS)
    each = max(0.0, (many - few) / (WORKERS[1] - WORKERS[0]))
    return max(0.0, few - WORKERS[0] * each) + workers * each


def _peak(strategy: str, options: Any, workers: int) -> float:
    """Copies of the model, at most, in an epoch of so many workers in one process."""
    own = [make_strategy(strategy, options) for _ in range(workers)]
    host = Simulation(workers, Cluster.read(CLUSTER)) if own[0].independent else Host(workers)
    host.workers = tiny_workers(1, workers, 2 * own[0].cycle(workers, 1), [SHAPE])
    with LiveBytes() as counted:
        host.run([one.epoch(worker, fabric) for one, worker, fabric in zip(own, host.workers, host.fabrics, strict=True)])
    return counted.peak / (math.prod(SHAPE) * torch.float32.itemsize)
