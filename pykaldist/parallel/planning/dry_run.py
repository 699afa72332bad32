"""A strategy's own code gone through with nothing trained: what its requests and its own work take on a cluster.

Workers without data, whose steps do nothing, carry a small model, a matrix of as many rows as a layer has units; links and memory are as
much slower as the model is smaller.

`rehearse` goes through the epoch of a strategy whose workers go in step, and prices what it asks for. `epoch_seconds` simulates an epoch
of any strategy on the clock of a cluster file, with stragglers and all that the file has.

Of an epoch of E minibatches a worker that is long, two shorter ones are gone through, of r and of r + n minibatches, so that what is done
once an epoch counts once:

    T(E) = T(r) + (E - r) / n (T(r + n) - T(r)),

n a whole number of the strategy's cycles. Where workers go in step, r is the rest of E over n, plus n, so that a last period that is not a
whole one counts as such; else it is n.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor

from pykaldist.frames.sampler import Sampler
from pykaldist.optim.optimizer import Optimizer
from pykaldist.parallel.clusters.cluster import Cluster, Compute, Link, Workload
from pykaldist.parallel.clusters.costs import expected_maximum, scaled, score_seconds, work_seconds
from pykaldist.parallel.clusters.network import Network
from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.engines.priced import PricedHost
from pykaldist.parallel.engines.simulation import Simulation
from pykaldist.parallel.fabric.interface import Begin, Fabric, Finish, T, num_bytes
from pykaldist.parallel.fabric.processes import Processes
from pykaldist.parallel.fabric.worker import Worker
from pykaldist.parallel.strategies.base.registry import make_strategy, strategy_options

MINIBATCHES = 120  # of a worker in the shorter epoch, at least
MINIBATCHES_IN_STEP = 2  # likewise, of workers that go in step, who do the same every cycle
SHAPE = 1024, 8  # of the model's matrix


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
    """An optimiser that leaves its model, of matrices and vectors of these shapes, as it is."""

    additive = goes_map_by_map = False

    def __init__(self, shapes: list[tuple[int, ...]], device: torch.device | str = "cpu") -> None:
        size = sum(math.prod(shape) for shape in shapes)
        self.velocity, params = (torch.zeros(size, device=device) for _ in range(2))
        model = SimpleNamespace(params=params, device=params.device, statistics=list, shapes=[shapes])
        self.learner = SimpleNamespace(model=model, num_totals=1)

    def set_rate(self, learn_rate: float) -> None:
        pass

    def local_step(self, minibatch: range, learn_rate: float, totals: Tensor) -> None:
        pass

    def gradient(self, minibatch: range, gradient: Tensor, totals: Tensor) -> None:
        pass

    def apply(self, gradient: Tensor, learn_rate: float, frames: int) -> None:
        pass


def _workers(minibatch_size: int, ngpu: int, minibatches: int, shapes: list[tuple[int, ...]], device: torch.device | str = "cpu",
             ) -> list[Worker]:
    data = cast(Sampler, NoData(minibatch_size, minibatches))
    workers = [Worker(cast(Optimizer, NoSteps(shapes, device)), data) for _ in range(ngpu)]
    for worker in workers:
        worker.begin_epoch(0, 0.0)
    return workers


def _shrunk(cluster: Cluster, workload: Workload) -> Cluster:
    """For a workload, with the small model in place of its own: links and memory as much slower, and nothing done once an epoch."""
    share = math.prod(SHAPE) / workload.parameters

    def slower(link: Link | None) -> Link | None:
        return link and dataclasses.replace(link, bandwidth=link.bandwidth * share)

    compute = scaled(cluster, workload)
    memory = compute.memory_bandwidth and compute.memory_bandwidth * share
    work = {what: bandwidth * share for what, bandwidth in compute.work_bandwidth.items()}
    table = cluster.allreduce and dataclasses.replace(cluster.allreduce, bytes=max(1, round(cluster.allreduce.bytes * share)))
    return dataclasses.replace(cluster, workload=dataclasses.replace(workload, parameters=math.prod(SHAPE), cv_frames=0), sources={},
                               compute=dataclasses.replace(compute, epoch_seconds=0.0, memory_bandwidth=memory, work_bandwidth=work),
                               within=slower(cluster.within), between=slower(cluster.between), allreduce=table)


def _cycles(strategy: str, options: Any, workload: Workload, ngpu: int, least: int) -> int:
    """Minibatches of whole cycles, `least` or more."""
    cycle = make_strategy(strategy, options).cycle(ngpu, workload.minibatch_size)
    return -(-least // cycle) * cycle


def _extrapolated(n: int, minibatches: float, in_step: bool, of: Callable[[int], list[float]]) -> list[float]:
    """What `of` gives for an epoch of so many minibatches a worker, from shorter ones where it is long."""
    whole = math.ceil(minibatches)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the tensors are small
    try:
        if whole < 3 * n:
            return of(whole)
        short, end = (n + whole % n, whole) if in_step else (n, minibatches)
        return [a + (end - short) / n * (b - a) for a, b in zip(of(short), of(short + n), strict=True)]
    finally:
        torch.set_num_threads(threads)


@dataclass(frozen=True)
class Rehearsed:
    """Of an epoch of workers in step: seconds of exchange that computing does not hide, of waiting, and what work was not counted."""

    exchange: float
    wait: float
    uncounted: str


def rehearse(strategy: str, options: Any, workload: Workload, cluster: Cluster, ngpu: int, minibatches: float) -> Rehearsed:
    """An epoch of so many minibatches of a worker, with even shards."""
    uncounted: set[str] = set()
    small = _shrunk(cluster, workload)

    def of(count: int) -> list[float]:
        host = _Rehearsal(ngpu, small)
        host.workers = _workers(workload.minibatch_size, ngpu, count, [SHAPE])
        host.run([make_strategy(strategy, options).epoch(w, f) for w, f in zip(host.workers, host.fabrics, strict=True)])
        host.count_work()
        uncounted.update(host.uncounted)
        return [host.exchange, host.wait]

    exchange, wait = _extrapolated(_cycles(strategy, options, workload, ngpu, MINIBATCHES_IN_STEP), minibatches, True, of)
    return Rehearsed(exchange, wait, ", ".join(sorted(uncounted)))


class _RehearsalFabric(Fabric):
    """`moved`: bytes of the strategy's own work since the last meeting, by what it is."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self.moved: dict[str, float] = {}

    async def compute(self, work: Callable[..., T], *arguments: Any) -> T:
        return work(*arguments)

    async def work(self, what: str, work: Callable[[], T], over: Tensor, passes: float) -> T:
        self.moved[what] = self.moved.get(what, 0.0) + passes * num_bytes(over)
        return work()


class _Unsummed(PricedHost):
    """Nobody looks at the values."""

    def _add(self, processes: Processes, buffers: list[Tensor], factors: list[float], scale: float) -> None:
        pass

    def _hand_out(self, buffers: list[Tensor]) -> None:
        pass


class _Rehearsal(_Unsummed):
    """Adds up seconds while workers go from one meeting to the next.

    Where they meet, they wait for the slowest of them (`plan.py`): after q minibatches of a device e(n) v t sqrt(q) is expected.
    """

    def __init__(self, size: int, cluster: Cluster) -> None:
        super().__init__(size, Network(cluster, size))
        self.fabrics: Sequence[_RehearsalFabric] = [_RehearsalFabric(rank, size) for rank in range(size)]
        self._share_living()
        for fabric in self.fabrics:
            fabric.node_size = min(size, cluster.devices * self.network.sharing)
        self.compute = cluster.compute
        self.exchange = self.wait = self._now = 0.0
        self.uncounted: set[str] = set()
        self._done = self._alike = 0  # minibatches of a worker, up to the last request, and to the last meeting
        self._overlap_host: _Unsummed = _Unsummed(size, self.network)

    def _answers_to(self, requests: list[Any]) -> list[Any]:
        first, c, sharing = requests[0], self.compute, self.network.sharing
        done = max(worker.index for worker in self.workers)
        self._now += sharing * (done - self._done) * step_seconds(c, self.size)
        self.count_work()
        self._done = done
        if isinstance(first, Begin):
            return self._overlap_host.begin(self._now, requests)
        waited = expected_maximum(self.network.devices) * c.spread * c.minibatch_seconds * math.sqrt(sharing * (done - self._alike))
        self.wait += waited
        self._now += waited
        self._alike = done
        if isinstance(first, Finish):
            self._spend(max(0.0, self._overlap_host.ends[first.ticket] - self._now))
            return self._overlap_host.finish(first.ticket)
        before = self.took
        answers = super()._answers_to(requests)
        self._spend(self.took - before)
        return answers

    def count_work(self) -> None:
        """What the strategy has computed itself since the last meeting."""
        moved = [fabric.moved for fabric in self.fabrics]
        for what in {what for own in moved for what in own}:
            seconds = work_seconds(self.compute, what, max(own.pop(what, 0.0) for own in moved))
            if seconds is None:
                self.uncounted.add(what)
            self._spend(self.network.sharing * (seconds or 0.0))

    def _spend(self, seconds: float) -> None:
        self.exchange += seconds
        self._now += seconds


def step_seconds(compute: Compute, ngpu: int) -> float:
    """A minibatch of one worker of `ngpu`, loading included."""
    step = compute.alone if ngpu == 1 else compute.minibatch_seconds
    return max(step, compute.load_seconds) if compute.load_overlaps else step + compute.load_seconds


def simulated(strategy: str, options: Any, workload: Workload, cluster: Cluster, ngpu: int, minibatches: float) -> list[float]:
    """Seconds of an epoch of so many minibatches a worker on the cluster's clock, without its end; and those of them, the mean over
    workers, that went into computing, exchanging, waiting and loading."""
    small = _shrunk(cluster, workload)

    def of(count: int) -> list[float]:
        host = Simulation(ngpu, small)
        host.workers = _workers(workload.minibatch_size, ngpu, count, [SHAPE])
        host.begin_epoch()
        host.run([make_strategy(strategy, options).epoch(w, f) for w, f in zip(host.workers, host.fabrics, strict=True)])
        return [host.elapsed(), *host.spent()]

    return _extrapolated(_cycles(strategy, options, workload, ngpu, MINIBATCHES), minibatches, False, of)


def epoch_seconds(cluster: Cluster, ngpu: int, strategy: str, options: Any = None) -> float:
    """Simulated seconds of an epoch of the cluster's own workload with `ngpu` workers, whose shards are even; `options` of the strategy, or
    its defaults."""
    options = strategy_options(strategy)() if options is None else options
    work, compute = cluster.workload, scaled(cluster, cluster.workload)
    minibatches = work.frames / work.minibatch_size / ngpu
    seconds = simulated(strategy, options, work, cluster, ngpu, minibatches)[0]
    return seconds + score_seconds(work, compute, cluster, ngpu) + compute.epoch_seconds


def speed_up(cluster: Cluster, ngpu: int, strategy: str, options: Any = None) -> float:
    """Of an epoch over one worker's."""
    return epoch_seconds(cluster, 1, "local") / epoch_seconds(cluster, ngpu, strategy, options)



class _TimedFabric(Fabric):
    """`spent`: of the strategy's own work, by what it is, bytes and seconds."""

    def __init__(self, rank: int, size: int, synchronise: Callable[[], None]) -> None:
        super().__init__(rank, size)
        self.spent: dict[str, tuple[float, float]] = {}
        self._synchronise = synchronise

    async def work(self, what: str, work: Callable[[], T], over: Tensor, passes: float) -> T:
        self._synchronise()
        before = time.perf_counter()
        result = work()
        self._synchronise()
        moved, seconds = self.spent.get(what, (0.0, 0.0))
        self.spent[what] = moved + passes * num_bytes(over), seconds + time.perf_counter() - before
        return result


def work_bandwidth(strategy: str, shapes: list[tuple[int, ...]], device: torch.device, synchronise: Callable[[], None]) -> dict[str, float]:
    """Bytes/s that go through what a strategy computes itself, by what it is, measured on models of these shapes of two workers in step."""
    trial = make_strategy(strategy)
    if trial.independent:
        return {}
    host = Host(2)
    fabrics = [_TimedFabric(rank, 2, synchronise) for rank in range(2)]
    host.fabrics, host.workers = fabrics, _workers(1, 2, 2 * trial.cycle(2, 1), shapes, device)
    host.run([make_strategy(strategy).epoch(w, f) for w, f in zip(host.workers, fabrics, strict=True)])
    first, second = (fabric.spent for fabric in fabrics)
    return {what: (first[what][0] + second[what][0]) / (first[what][1] + second[what][1]) for what in first}
