"""One worker in simulated time: its operations, and how long its work takes on a cluster.

With t the seconds of a minibatch, scaled to the run's minibatch and parameters as for a plan (`costs.scaled`):
    compute     t, times the part of a full minibatch, times the worker's `slow`, times the number of workers that share a device, and the
                loading that does not overlap with it. With `spread` v it is drawn from a gamma distribution of mean t and standard
                deviation v t.
    own work    a strategy's own work, such as a filter, takes the bytes that it moves over `memory_bandwidth`, times the number of workers
                that share a device. It takes no time where the cluster file does not have a bandwidth.
    pauses      work takes longer by the time in which the worker stands still. Other workers can still call it, as its helper thread lives.

Every random time comes from the counter-based generator of (seed, worker, number of the time among the worker's), of which a block of
numbers is drawn at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, cast

import numpy as np
from torch import Tensor

from pykaldist.parallel.clusters.cluster import Cluster, Pause, Workload
from pykaldist.parallel.clusters.costs import scaled, work_seconds
from pykaldist.parallel.fabric.interface import BeginParts, Compute, Fabric, T, num_bytes

COMPUTE_TIMES = 1  # number of a stream of random numbers
DRAWS = 64  # random numbers of a worker that are drawn at once
LEAST_VARIANCE = 1e-12  # variance of a minibatch's relative seconds below which they are all equal


class SimulatedFabric(Fabric):
    """The operations of one simulated worker. `trace`: the answers since the last mark; None for a strategy that makes no marks."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self.seconds["load"] = 0.0
        self.trace: list[Any] | None = None

    async def compute(self, work: Callable[..., T], *arguments: Any) -> T:
        return cast(T, await Compute(partial(work, *arguments) if arguments else work))

    async def compute_parts(self, work: Callable[..., T], slices: Sequence[slice],
                            exchange: Callable[[int], Coroutine[Any, Any, Any]]) -> tuple[T, list[int]]:
        result = await self.compute(work)
        return result, cast(list[int], await BeginParts(slices, exchange))

    async def work(self, what: str, work: Callable[[], T], over: Tensor, passes: float) -> T:
        return await Compute(work, what, passes * num_bytes(over))

    def mark(self) -> None:
        self.trace = []


class WorkTimes:
    """The seconds of the workers' work on a cluster with `size` workers, of which `sharing` share a device.

    `seconds` are the cluster's, scaled to the run's workload by `scale`.
    """

    def __init__(self, cluster: Cluster, size: int, sharing: int, seed: int) -> None:
        self.cluster, self.size, self.sharing, self.seed = cluster, size, sharing, seed
        self.seconds = cluster.compute
        self.drawn = [0] * size  # random times of each worker so far
        self._draws: list[list[float]] = [[] for _ in range(size)]  # those that come next, the next one last
        self._pauses: dict[int, list[Pause]] = defaultdict(list)
        for pause in sorted(cluster.pauses, key=lambda p: p.at):
            self._pauses[pause.worker].append(pause)

    def scale(self, workload: Workload) -> None:
        """Scale the cluster's seconds to a workload."""
        self.seconds = scaled(self.cluster, workload)

    def load_drawn(self, drawn: list[int]) -> None:
        """Continue each worker's random times where so many of them have been drawn."""
        self.drawn, self._draws = list(drawn), [[] for _ in drawn]

    def minibatch(self, rank: int, part: float) -> tuple[float, float]:
        """(seconds of computing, seconds of loading that computing does not hide) of a part of a full minibatch."""
        seconds = self.seconds
        mean = self.sharing * part * (seconds.alone if self.size == 1 else seconds.minibatch_seconds)
        load = self.sharing * part * seconds.load_seconds
        compute = self._draw(rank, mean * self.cluster.slow.get(str(rank), 1.0)) if part else 0.0
        return compute, max(0.0, load - compute) if seconds.load_overlaps else load

    def own_work(self, what: str, moved: float) -> float:
        """Seconds of a strategy's own work, which `what` names and which moves so many bytes."""
        return self.sharing * (work_seconds(self.seconds, what, moved) or 0.0)

    def end(self, rank: int, begin: float, seconds: float, before: float) -> float:
        """The time when a worker's work ends that begins at `begin`, with its pauses. `before`: seconds of the epochs before."""
        time = begin
        for pause in self._pauses.get(rank, ()):
            start = pause.at - before
            if start >= time + seconds:
                break
            if start + pause.seconds > time:
                seconds -= max(0.0, start - time)
                time = start + pause.seconds
        return time + seconds

    def _draw(self, rank: int, mean: float) -> float:
        """Draw the random seconds of a minibatch."""
        variance = self.seconds.spread**2
        if variance < LEAST_VARIANCE:
            return mean
        draws = self._draws[rank]
        if not draws:
            block, place = divmod(self.drawn[rank], DRAWS)
            generator = np.random.Generator(np.random.Philox(np.random.SeedSequence([self.seed, COMPUTE_TIMES, rank, block])))
            draws.extend(generator.standard_gamma(1.0 / variance, DRAWS)[place:][::-1].tolist())
        self.drawn[rank] += 1
        return mean * variance * draws.pop()
