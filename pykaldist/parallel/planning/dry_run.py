"""A dry run: a strategy's own code is run without training, to find what its requests and its own work take on a cluster.

The workers have no data, and their steps do nothing. Their model is small: a matrix with as many rows as a layer has units. Links and
memory are slower in the same proportion as the model is smaller.

`rehearse` runs an epoch of a strategy with synchronous workers, and adds up the times of what it requests. `simulated` simulates an epoch
of any strategy on the clock of a cluster file, with slow workers and all else that the file has.

An epoch of E minibatches of a worker may be long. Then two shorter epochs are run, of r and of r + n minibatches, so that what is done once
in an epoch is counted once:

    T(E) = T(r) + (E - r) / n (T(r + n) - T(r)),

with n a whole number of the strategy's cycles. For synchronous workers r is n plus the remainder of E over n, so that a last period that is
not a whole one is counted as it is. For others r is n.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.frames.sampler import Sampler
from pykaldist.nnet.cuda_graphs import Parts
from pykaldist.optim.optimizer import Optimizer
from pykaldist.parallel.clusters.cluster import Cluster, Compute, Link, Workload
from pykaldist.parallel.clusters.costs import expected_maximum, scaled, score_seconds, work_seconds
from pykaldist.parallel.clusters.network import Network
from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.engines.priced import PricedHost
from pykaldist.parallel.engines.simulation import Simulation
from pykaldist.parallel.fabric.interface import Begin, BeginParts, Fabric, Finish, T, num_bytes
from pykaldist.parallel.fabric.processes import Processes
from pykaldist.parallel.fabric.worker import Worker
from pykaldist.parallel.strategies.base.registry import make_strategy, strategy_options

MINIBATCHES = 120  # of a worker in the shorter epoch, at least; for independent workers
MINIBATCHES_IN_STEP = 2  # the same for synchronous workers, which repeat every cycle
SHAPE = 1024, 8  # of the model's matrix


@dataclass
class NoData:
    """A sampler without data: its minibatches are ranges of frame numbers. All `splits` are alike, of equal `blocks`."""

    minibatch_size: int
    minibatches: int
    splits: int = 1
    blocks: int = 1
    seed: int = 0

    @property
    def frames(self) -> int:
        return self.minibatch_size * self.minibatches

    def epoch(self, epoch: int, start: int = 0) -> Generator[range, int, None]:
        while start < self.minibatches:
            start = (yield range(self.minibatch_size)) or start + 1

    def block_ends(self, epoch: int) -> list[int]:
        return [self.minibatches * (block + 1) // self.blocks for block in range(self.blocks)]

    @property
    def partition(self) -> NoData:
        return self

    def of_split(self, split: int) -> NoData:
        return self

    def frames_between(self, epoch: int, start: int, stop: int) -> int:
        return self.minibatch_size * (stop - start)


class NoSteps:
    """An optimiser that changes nothing. Its model has matrices and vectors of these shapes.

    It stands for one of so many `parameters`, whose gradient is made in parts of equal size.
    """

    additive = goes_map_by_map = False

    def __init__(self, shapes: list[tuple[int, ...]], device: torch.device | str = "cpu", parameters: int = 0) -> None:
        size = sum(math.prod(shape) for shape in shapes)
        self.velocity, params = (torch.zeros(size, device=device) for _ in range(2))

        def parts(least: int) -> list[slice]:
            edges = [size * k // max(1, parameters // least) for k in range(max(1, parameters // least), -1, -1)]
            return [slice(start, stop) for stop, start in itertools.pairwise(edges)]

        model = SimpleNamespace(params=params, device=params.device, statistics=list, shapes=[shapes], parts=parts)
        self.learner = SimpleNamespace(model=model, num_totals=1, settle=lambda: None)

    def set_rate(self, learn_rate: float) -> None:
        pass

    def local_step(self, minibatch: range, learn_rate: float, totals: Tensor) -> None:
        pass

    def gradient(self, minibatch: range, gradient: Tensor, totals: Tensor, parts: Parts | None = None) -> None:
        pass

    def apply(self, gradient: Tensor, learn_rate: float, frames: int) -> None:
        pass

    def recorded(self, kind: tuple[float, ...], work: Callable[[], None]) -> None:
        work()


def tiny_workers(minibatch_size: int, ngpu: int, minibatches: int, shapes: list[tuple[int, ...]], device: torch.device | str = "cpu",
                 parameters: int = 0, one_model: bool = False, blocks: int = 1) -> list[Worker]:
    """Workers without data. Their models stand for some with so many parameters; with `one_model` all of them have the same, of zeros."""
    data = cast(Sampler, NoData(minibatch_size, minibatches, ngpu, blocks))
    steps = [NoSteps(shapes, device, parameters) for _ in range(1 if one_model else ngpu)]
    workers = [Worker(cast(Optimizer, steps[k % len(steps)]), data) for k in range(ngpu)]
    for worker in workers:
        worker.begin_epoch(0, 0.0)
    return workers


def _shrunk(cluster: Cluster, workload: Workload) -> Cluster:
    """The cluster for a workload with the small model in place of its own: slower links and memory, and nothing done once in an epoch."""
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
    """Minibatches of a whole number of cycles: `least` or more."""
    cycle = make_strategy(strategy, options).cycle(ngpu, workload.minibatch_size)
    return -(-least // cycle) * cycle


def _extrapolated(n: int, minibatches: float, in_step: bool, of: Callable[[int], list[float]]) -> list[float]:
    """What `of` gives for an epoch of so many minibatches of a worker; computed from two shorter epochs where it is long."""
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
    """Times of an epoch of synchronous workers: seconds of exchange that computing does not hide, and of waiting.

    `uncounted` names the work whose time is not known.
    """

    exchange: float
    wait: float
    uncounted: str


def rehearse(strategy: str, options: Any, workload: Workload, cluster: Cluster, ngpu: int, minibatches: float) -> Rehearsed:
    """Rehearse an epoch of so many minibatches of a worker; all workers have equally many."""
    uncounted: set[str] = set()
    small = _shrunk(cluster, workload)

    def of(count: int) -> list[float]:
        host = _Rehearsal(ngpu, small)
        host.workers = tiny_workers(workload.minibatch_size, ngpu, count, [SHAPE], parameters=workload.parameters)
        host.run([make_strategy(strategy, options).epoch(w, f) for w, f in zip(host.workers, host.fabrics, strict=True)])
        host.count_work()
        uncounted.update(host.uncounted)
        return [host.exchange, host.wait]

    exchange, wait = _extrapolated(_cycles(strategy, options, workload, ngpu, MINIBATCHES_IN_STEP), minibatches, True, of)
    return Rehearsed(exchange, wait, ", ".join(sorted(uncounted)))


class _RehearsalFabric(Fabric):
    """The operations of one worker in a rehearsal. `moved`: name of a strategy's own work -> its bytes since the last exchange."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self.moved: dict[str, float] = {}

    async def compute(self, work: Callable[..., T], *arguments: Any) -> T:
        return work(*arguments)

    async def compute_parts(self, work: Callable[..., T], slices: Sequence[slice],
                            exchange: Callable[[int], Coroutine[Any, Any, Any]]) -> tuple[T, list[int]]:
        return work(), cast(list[int], await BeginParts(slices, exchange))

    async def work(self, what: str, work: Callable[[], T], over: Tensor, passes: float) -> T:
        self.moved[what] = self.moved.get(what, 0.0) + passes * num_bytes(over)
        return work()


class _Unsummed(Host):
    """A host that does not sum: nobody looks at the values."""

    def _add(self, processes: Processes, buffers: list[Tensor], factors: list[float], scale: float) -> None:
        pass

    def _hand_out(self, buffers: list[Tensor]) -> None:
        pass


class _UnsummedPriced(_Unsummed, PricedHost):
    """A priced host that does not sum."""


class _DrySimulation(_Unsummed, Simulation):
    """A simulation that does not sum."""

    priced = _UnsummedPriced


class _Rehearsal(_UnsummedPriced):
    """Adds up seconds while the workers go from one exchange to the next.

    At an exchange they wait for the slowest of them (`plan.py`): after q minibatches of a device, e(n) v t sqrt(q) is expected.
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
        self._done = self._alike = 0  # minibatches of a worker up to the last request, and up to the last exchange
        self._overlap_host: _UnsummedPriced = _UnsummedPriced(size, self.network)

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
        if isinstance(first, BeginParts):
            return self._overlap_host.begin_parts([(self._now, c.minibatch_seconds)], requests)
        if isinstance(first, Finish):
            self._spend(max(0.0, self._overlap_host.ends[first.ticket] - self._now))
            return self._overlap_host.finish(first.ticket)
        before = self.took
        answers = super()._answers_to(requests)
        self._spend(self.took - before)
        return answers

    def count_work(self) -> None:
        """Add the time of the strategy's own work since the last exchange."""
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
    """Seconds of a minibatch of one worker of `ngpu`, with loading."""
    step = compute.alone if ngpu == 1 else compute.minibatch_seconds
    return max(step, compute.load_seconds) if compute.load_overlaps else step + compute.load_seconds


def simulated(strategy: str, options: Any, workload: Workload, cluster: Cluster, ngpu: int, minibatches: float) -> list[float]:
    """Simulate an epoch of so many minibatches of a worker.

    Returns its seconds, and the means over workers of computing, exchanging, waiting and loading. What follows the epoch, such as
    cross-validation, is not in it.
    """
    def of(count: int) -> list[float]:
        host = simulated_epoch(strategy, options, workload, cluster, ngpu, count)
        return [host.elapsed(), *host.spent()]

    return _extrapolated(_cycles(strategy, options, workload, ngpu, MINIBATCHES), minibatches, False, of)


def simulated_epoch(strategy: str, options: Any, workload: Workload, cluster: Cluster, ngpu: int, minibatches: int) -> Simulation:
    """Simulate an epoch of so many minibatches of each worker, event by event; returns the simulation at its end.

    Where the cluster lets workers die, synchronous ones are those of an elastic job. Raises UserError for strategies that cannot go on.
    """
    host, strategies = _DrySimulation(ngpu, _shrunk(cluster, workload)), [make_strategy(strategy, options) for _ in range(ngpu)]
    if cluster.failures and not strategies[0].independent:
        if why := strategies[0].inelastic():
            raise UserError(f"cluster {cluster.name} lets workers fail: {why}.")
        host.be_elastic()
    host.workers = tiny_workers(workload.minibatch_size, ngpu, minibatches, [SHAPE], parameters=workload.parameters, one_model=True)
    host.essential, host.lost_with = strategies[0].essential, strategies[0].lost_with
    host.begin_epoch()
    host.run([one.epoch(w, f) for one, w, f in zip(strategies, host.workers, host.fabrics, strict=True)])
    return host


def epoch_seconds(cluster: Cluster, ngpu: int, strategy: str, options: Any = None) -> float:
    """Simulated seconds of an epoch of the cluster's own workload with `ngpu` workers, all with equally many frames.

    `options` are those of the strategy; None: its defaults.
    """
    options = strategy_options(strategy)() if options is None else options
    work, compute = cluster.workload, scaled(cluster, cluster.workload)
    minibatches = work.frames / work.minibatch_size / ngpu
    seconds = simulated(strategy, options, work, cluster, ngpu, minibatches)[0]
    return seconds + score_seconds(work, compute, cluster, ngpu) + compute.epoch_seconds


def speed_up(cluster: Cluster, ngpu: int, strategy: str, options: Any = None) -> float:
    """The seconds of an epoch with one worker over those with `ngpu` workers."""
    return epoch_seconds(cluster, 1, "local") / epoch_seconds(cluster, ngpu, strategy, options)



class _TimedFabric(Fabric):
    """The operations of one worker, which measure the strategy's own work. `spent`: name of the work -> its bytes and seconds."""

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
    """Measure a strategy's own work: name of the work -> bytes/s, on models of these shapes, of two synchronous workers."""
    trial = make_strategy(strategy)
    if trial.independent:
        return {}
    host = Host(2)
    fabrics = [_TimedFabric(rank, 2, synchronise) for rank in range(2)]
    host.fabrics, host.workers = fabrics, tiny_workers(1, 2, 2 * trial.cycle(2, 1), shapes, device)
    host.run([make_strategy(strategy).epoch(w, f) for w, f in zip(host.workers, fabrics, strict=True)])
    first, second = (fabric.spent for fabric in fabrics)
    return {what: (first[what][0] + second[what][0]) / (first[what][1] + second[what][1]) for what in first}
