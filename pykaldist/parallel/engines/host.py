"""The host: one process's share of the workers of a job.

N workers on P processes: process p hosts the workers p N / P to (p + 1) N / P - 1. The host drives their coroutines in turn, each up to its
next request. When all wait, their requests, which are of one kind, are met together: first among the workers here, then between
processes. With one process for all, these are virtual workers; with as many processes as workers, the usual ranks.

Order of sums. Floating-point sums depend on it. Without `deterministic`, each process adds up its workers and the processes' sums are added
by whatever means is fastest. With it, every sum is taken in the order of the workers' ranks, as if all were here: each process
collects one stripe of everyone's buffer, sums it, and sends it round. The result is then the same, bit for bit, for any number of
processes and any means of exchange.

Overlap. Exchanges that are begun, and finished later, are carried out by a helper thread, one after the other, by a host of its own with a
second channel to the other processes (`Processes.twin`), while the workers here compute.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.parallel.fabric.interface import (
    Average,
    Begin,
    Exchange,
    Fabric,
    Finish,
    Gather,
    Maximum,
    Mean,
    Request,
    SafePoint,
    Scatter,
    Sum,
    Total,
    Within,
)
from pykaldist.parallel.fabric.processes import Alone, Divisible, Processes
from pykaldist.parallel.fabric.worker import Worker

PIECE = 1 << 20  # values that are summed up in order at a time, which bounds the memory that it takes
GO_ON, CHECKPOINT, GIVE_UP, STOP = range(4)  # what a process wants at a safe point; the most urgent wish is met


class Host:
    """The workers `ranks` of `size`, each with its `fabrics` end.

    `on_safe_point` is called with the most urgent `wish` of any process, if it is not 0, when all workers of the job are at a safe point.
    `disagreement`: ||w_k - mean|| / ||mean|| of the averages measured last in this epoch, the mean over workers. `living`: the workers of
    the job that have not died; `say` tells the user that one has.
    """

    time = "measured"  # what kind of seconds these are
    keeps_time = False  # where a run is resumed within an epoch, its seconds go on
    keeps_dead = False  # where it is resumed, workers that had died stay dead

    def __init__(self, size: int = 1, processes: Processes | None = None, deterministic: bool = False) -> None:
        self.processes = processes or Alone()
        self.between = self.processes  # of which groups can be made
        self._groups: dict[range, Divisible] = {}  # of processes, by their workers
        p, count = self.processes.rank, self.processes.size
        if size < count:
            raise ValueError(f"{size} workers on {count} processes")
        self.size, self.deterministic = size, deterministic
        self.bounds = [size * i // count for i in range(count + 1)]
        self.ranks = range(self.bounds[p], self.bounds[p + 1])
        self.fabrics = [Fabric(rank, size) for rank in self.ranks]
        self.living = list(range(size))
        self._share_living()
        self.essential = range(0)  # workers without which the others cannot go on
        self.say: Callable[[str], None] = lambda sentence: None
        self.disagreement = 0.0
        self._beside: Host | None = None  # serves what is begun
        self._helper: ThreadPoolExecutor | None = None
        self._begun: dict[int, Future[list[Any]]] = {}  # tickets
        self._last_ticket = 0
        self.workers: Sequence[Worker] = ()  # of this process, as who runs them says
        self.cv_frames = 0  # scored at an epoch's end
        self._start = time.perf_counter()
        self.wish: Callable[[], int] = lambda: 0
        self.on_safe_point: Callable[[int], None] = lambda wish: None
        self._serve: dict[type, Callable[[list[Any]], list[Any]]] = {
            Average: self._average, Mean: self._mean, Begin: self._begin, Finish: self._finish, Sum: self._sum, Maximum: self._maximum,
            Total: self._total, Exchange: self._exchange, Gather: self._gather, Scatter: self._scatter,
            SafePoint: self._safe_point, Within: self._within_groups}

    def begin_epoch(self) -> None:
        """Forget the epoch before."""
        self._start = time.perf_counter()
        self.disagreement = 0.0
        for fabric in self.fabrics:
            fabric.seconds = dict.fromkeys(fabric.seconds, 0.0)

    def elapsed(self) -> float:
        """Seconds since the epoch's beginning."""
        return time.perf_counter() - self._start

    def spent(self) -> list[float]:
        """Of these seconds, those of this process's workers: computing, exchanging, waiting, loading."""
        load = sum(worker.load_seconds for worker in self.workers)
        compute, exchange, wait = (sum(fabric.seconds[name] for fabric in self.fabrics) for name in ("compute", "exchange", "wait"))
        return [compute - load, exchange, wait, load]

    def notes(self) -> dict[str, Any]:
        """What else there is to say of the epoch in `history.jsonl`."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint has to hold of it."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up what `state_dict` gave."""

    def close(self) -> None:
        """Part from the other processes, when all have come here: the end of a job."""
        self.processes.close()

    def total(self, values: list[float]) -> list[float]:
        """Sums over processes."""
        return self.processes.control(values).tolist()

    def largest(self, values: list[float]) -> float:
        """The largest of all processes' values."""
        return float(self.processes.control([max(values)], largest=True)[0])

    def by_rank(self, own: list[Tensor]) -> list[list[float]]:
        """A small tensor of each worker that lives, of equal lengths, as lists in the order of ranks, on every process."""
        parts = self.processes.gather(torch.cat([tensor.cpu() for tensor in own]))
        return torch.cat(parts).view(-1, len(own[0])).tolist()

    def run(self, work: list[Coroutine[Any, Any, Any]]) -> list[Any]:
        """Drive one coroutine for each worker here to its end; their results.

        `on_safe_point` may raise Abandoned, in every process of the job; `abandon` is to be called then.
        """
        try:
            return self._run(work)
        finally:
            for coroutine in work:
                coroutine.close()

    def abandon(self) -> None:
        """Forget the epoch: what of it is under way, or in the checkpoint that the run goes on from. To be called by every process."""
        for begun in self._begun.values():  # everybody has begun it
            begun.result()
        self._begun.clear()

    def _run(self, work: list[Coroutine[Any, Any, Any]]) -> list[Any]:
        results: list[Any] = [None] * len(work)
        answers: list[Any] = [None] * len(work)
        while True:
            requests: list[Request] = []
            for i, coroutine in enumerate(work):
                try:
                    requests.append(coroutine.send(answers[i]))
                except StopIteration as end:
                    results[i] = end.value
            if not requests:
                return results
            kinds = {type(request).__name__ for request in requests}
            if len(requests) < len(work) or len(kinds) > 1:
                raise RuntimeError(f"{len(requests)} of {len(work)} workers wait for {', '.join(sorted(kinds))}: every worker has to make "
                                   "the same requests, as often")
            answers = self._met(requests)

    def _met(self, requests: list[Any]) -> list[Any]:
        """The answers to what all workers here ask for."""
        return self._serve[type(requests[0])](requests)

    def _timed(self, what: str, before: float) -> float:
        now = time.perf_counter()
        for fabric in self.fabrics:
            fabric.seconds[what] += (now - before) / len(self.fabrics)
        return now

    def _control(self, values: list[float] | np.ndarray, largest: bool = False) -> np.ndarray:
        """A few numbers from every process; the time until all have given theirs is time spent waiting."""
        before = time.perf_counter()
        result = self.processes.control(values, largest)
        self._timed("wait", before)
        return result

    def _by_rank(self, values: list[float]) -> np.ndarray:
        """A number of each worker, in the order of ranks, on every process; 0 of one that died."""
        table = np.zeros(self.size)
        table[self.living_here()] = values
        return self._control(table)

    def _share_living(self) -> None:
        for fabric in self.fabrics:
            fabric.living = self.living

    def living_here(self) -> list[int]:
        """This process's workers."""
        return [rank for rank in self.ranks if rank in self.living]

    def _average(self, requests: list[Average]) -> list[None]:
        weights = self._by_rank([r.weight for r in requests])
        if not weights.any():
            return [None] * len(requests)
        before = time.perf_counter()
        buffers = [r.buffer for r in requests]
        own = buffers[0].clone() if requests[0].measure else None
        self._add(self.processes, buffers, *self._factors(weights))
        if own is not None:
            self._measure([own, *buffers[1:]], buffers[0])
        self._hand_out(buffers)
        self._timed("exchange", before)
        return [None] * len(requests)

    def _factors(self, weights: np.ndarray) -> tuple[list[float], float]:
        """What each buffer here is to be multiplied by for a weighted mean, and then their sum."""
        if (weights == weights[0]).all():  # no pass over the buffers before the sum
            return [1.0] * len(self.ranks), 1.0 / self.size
        return (weights / weights.sum())[self.living_here()].tolist(), 1.0

    def _mean(self, requests: list[Mean]) -> list[Tensor]:
        factors, scale = self._factors(self._by_rank([r.weight for r in requests]))
        before = time.perf_counter()
        first, *others = [r.buffer for r in requests]
        mean = first.clone()
        self._add(self.processes, [mean, *others], factors, scale)
        self._timed("exchange", before)
        return [mean] * len(requests)

    def _begin(self, requests: list[Begin]) -> list[int]:
        if self._helper is None:
            self._beside = Host(self.size, self.processes.twin(), self.deterministic)
            self._helper = ThreadPoolExecutor(1, "exchange")
        assert self._beside is not None
        self._last_ticket += 1
        self._begun[self._last_ticket] = self._helper.submit(self._beside.run, [r.exchange for r in requests])
        return [self._last_ticket] * len(requests)

    def _finish(self, requests: list[Finish]) -> list[Any]:
        before = time.perf_counter()
        results = self._begun.pop(requests[0].ticket).result()
        self._timed("exchange", before)
        return results

    def _measure(self, buffers: list[Tensor], mean: Tensor) -> None:
        """Note how far the workers' buffers were from their mean; one of them is overwritten after the other."""
        norm = torch.linalg.vector_norm(mean)
        far = [float(torch.linalg.vector_norm(buffer.sub_(mean)) / norm) for buffer in buffers]
        self.disagreement = float(self._by_rank(far).sum()) / len(self.living)

    def _sum(self, requests: list[Sum]) -> list[float]:
        total = float(self._by_rank([r.value for r in requests]).sum())
        before = time.perf_counter()
        buffers = [r.buffer for r in requests]
        self._add(self.processes, buffers, [1.0] * len(buffers), 1.0)
        self._hand_out(buffers)
        self._timed("exchange", before)
        return [total] * len(requests)

    @staticmethod
    def _hand_out(buffers: list[Tensor]) -> None:
        for buffer in buffers[1:]:
            buffer.copy_(buffers[0])

    def _add(self, processes: Processes, buffers: list[Tensor], factors: list[float], scale: float) -> None:
        """The first buffer <- scale sum_k factor_k buffer_k over all workers; the others stay as they are."""
        if self.deterministic and processes.size > 1:
            for pieces in zip(*[buffer.split(PIECE) for buffer in buffers], strict=True):
                self._add_in_order(processes, list(pieces), factors, scale)
            return
        first = buffers[0]
        if factors[0] != 1.0:
            first.mul_(factors[0])
        for buffer, factor in zip(buffers[1:], factors[1:], strict=True):
            if factor == 1.0:
                first.add_(buffer)
            elif self.deterministic:
                first.add_(buffer * factor)
            else:
                first.add_(buffer, alpha=factor)
        processes.sum(first, scale)

    def _add_in_order(self, processes: Processes, buffers: list[Tensor], factors: list[float], scale: float) -> None:
        """`_add`, by stripes, one a process, each summed up in the order of the workers' ranks."""
        edges = [len(buffers[0]) * i // processes.size for i in range(processes.size + 1)]
        stripes = [slice(a, b) for a, b in itertools.pairwise(edges)]
        scaled = [buffer if factor == 1.0 else buffer * factor for buffer, factor in zip(buffers, factors, strict=True)]
        received = processes.scatter([torch.cat([buffer[stripe] for buffer in scaled]) for stripe in stripes])
        own = stripes[processes.rank]
        rows = torch.cat(received).view(self.size, own.stop - own.start)
        stripe = rows[0].clone()
        for row in rows[1:]:
            stripe.add_(row)
        if scale != 1.0:
            stripe.mul_(scale)
        torch.cat(processes.gather(stripe), out=buffers[0])

    def _within_groups(self, requests: list[Within]) -> list[float]:
        values: list[float] = []
        while len(values) < len(requests):
            members = requests[len(values)].members
            values += self._within([r for r in requests if r.members == members])
        return values

    def _within(self, requests: list[Within]) -> list[float]:
        """What all workers here of one group ask for."""
        before, first = time.perf_counter(), requests[0]
        buffers, total = [r.buffer for r in requests], sum(r.value for r in requests)
        if first.sums:
            for buffer in buffers[1:]:
                buffers[0].add_(buffer)
        if len(first.members) > len(requests):
            group = self._group(first.members)
            if first.sums:
                group.sum(buffers[0], 1.0)
                total = float(group.control([total])[0])
            else:
                group.broadcast(buffers[0])
        self._hand_out(buffers)
        self._timed("exchange", before)
        return [total] * len(requests)

    def _group(self, members: range) -> Divisible:
        """The processes that host a group of workers."""
        if members not in self._groups:
            hosting = [p for p, (a, b) in enumerate(itertools.pairwise(self.bounds)) if a < members.stop and b > members.start]
            if self.bounds[hosting[0]] != members.start or self.bounds[hosting[-1] + 1] != members.stop:
                raise UserError(f"the workers {members.start} to {members.stop - 1} are to go in step, and the processes that host them "
                                "host others too; use as many processes (--nproc) as workers, or groups of whole processes (--group-size).")
            assert isinstance(self.between, Divisible)
            self._groups[members] = self.between.group(hosting)
        return self._groups[members]

    def _total(self, requests: list[Total]) -> list[float]:
        return [float(self._by_rank([r.value for r in requests]).sum())] * len(requests)

    def _maximum(self, requests: list[Maximum]) -> list[float]:
        return [float(self._control([max(r.value for r in requests)], largest=True)[0])] * len(requests)

    def _safe_point(self, requests: list[SafePoint]) -> list[None]:
        wish = int(self._control([float(self.wish())], largest=True)[0])
        if wish:
            self.on_safe_point(wish)
        return [None] * len(requests)

    def _exchange(self, requests: list[Exchange]) -> list[Tensor]:
        if self.processes.size == 1:
            return [requests[r.source].buffer.clone() for r in requests]
        nothing = requests[0].buffer[:0]
        received = self._scattered([[r.buffer if k == r.to else nothing for k in range(self.size)] for r in requests])
        return [got[r.source] for got, r in zip(received, requests, strict=True)]

    def _scatter(self, requests: list[Scatter]) -> list[list[Tensor]]:
        return self._scattered([r.parts for r in requests])

    def _scattered(self, parts: list[list[Tensor]]) -> list[list[Tensor]]:
        """parts[i][k]: from the i-th worker here to worker k -> [i][k]: what the i-th worker here gets from worker k."""
        if self.processes.size == 1:
            return [[parts[k][i] for k in range(self.size)] for i in range(self.size)]
        table = np.zeros((self.size, self.size))
        table[self.ranks.start : self.ranks.stop] = [[len(part) for part in own] for own in parts]
        table = self._control(table.ravel()).reshape(self.size, self.size).astype(int)
        before = time.perf_counter()
        blocks = [range(a, b) for a, b in itertools.pairwise(self.bounds)]
        received = self.processes.scatter([torch.cat([own[k] for own in parts for k in block]) for block in blocks])
        result: list[list[Tensor]] = [[] for _ in parts]
        for block, flat in zip(blocks, received, strict=True):
            pieces = iter(flat.split([int(table[k, i]) for k in block for i in self.ranks]))
            for _ in block:
                for own in result:
                    own.append(next(pieces))
        self._timed("exchange", before)
        return result

    def _gather(self, requests: list[Gather]) -> list[list[Tensor]]:
        buffers = [r.buffer for r in requests]
        if self.processes.size > 1:
            lengths = self._by_rank([len(buffer) for buffer in buffers]).astype(int).tolist()
            before = time.perf_counter()
            buffers = list(torch.cat(self.processes.gather(torch.cat(buffers))).split(lengths))
            self._timed("exchange", before)
        return [buffers] * len(requests)
