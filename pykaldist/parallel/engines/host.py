"""The host: it runs one process's share of the workers of a job.

With N workers on P processes, process p hosts the workers p N / P to (p + 1) N / P - 1. The host runs their coroutines in turn, each up to
its next request. When all of them wait, their requests are of one kind. The host carries them out together: first among the workers of this
process, then between processes. With one process for all workers, these are virtual workers. With as many processes as workers, each
process is one rank.

Order of sums. Floating-point sums depend on their order. Without `deterministic`, each process first sums over its own workers. The
processes' sums are then summed in the fastest way. With `deterministic`, every sum is taken in the order of the workers' ranks, as if all
workers were in one process: each process collects one stripe of everyone's buffer, sums it, and sends it to all. The result is then the
same, bit for bit, for any number of processes and any fabric.

Stacked workers (`fabric/stack.py`) compute together: the host carries out what they ask for when none of them can go on without.

Overlap. Exchanges that are begun now and finished later are carried out by a helper thread, one after the other. The thread has a host of
its own, with a second channel to the other processes (`Processes.duplicate`), and on a GPU a stream of its own (`side_stream.py`). The
workers compute meanwhile. A buffer that is made part by part can be exchanged so while it is made (`Fabric.compute_parts`).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.nnet.cuda_graphs import Parts
from pykaldist.parallel.engines.elastic.membership import Elasticity, Join
from pykaldist.parallel.engines.ranks import Ranks
from pykaldist.parallel.engines.side_stream import SideStream
from pykaldist.parallel.fabric.clock import Clock, clock_of
from pykaldist.parallel.fabric.interface import (
    Average,
    Begin,
    Compute,
    ComputeParts,
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
    WithinGroup,
)
from pykaldist.parallel.fabric.processes import Processes, SingleProcess, SplittableProcesses
from pykaldist.parallel.fabric.stack import Stack
from pykaldist.parallel.fabric.worker import Worker

PIECE = 1 << 20  # values that are summed in order at a time; this bounds the memory needed
GO_ON, CHECKPOINT, GIVE_UP, STOP = range(4)  # what a process wants at a safe point; of all processes' wishes, the largest number is met


class Host:
    """Runs the workers `ranks` of a job of `size` workers. `fabrics` are the operations of these workers.

    `on_safe_point(wish)` is called when all workers of the job are at a safe point and some process's `wish()` is not GO_ON; it is given
    the largest wish of all processes. `disagreement` is the mean over workers of ||w_k - mean|| / ||mean||, from the averages measured last
    in this epoch; `update_cosine` is the mean cosine between the moves of two workers since they were one model, where a strategy says what
    that was (None where it does not): 1 where all move alike, 0 where each has its own way, so that their mean moves by 1/sqrt(N) of a
    worker's step. It follows from lengths alone: of moves u_k with the weights p_k of the mean m, the mean of u_j . u_k over pairs of
    workers is (||m||^2 - sum p_k^2 ||u_k||^2) / (1 - sum p_k^2), and the cosine is this over sum p_k ||u_k||^2.
    `living` are the ranks of the job's workers that have not died. `log` tells the user that one has.
    """

    time = "measured"  # the kind of seconds in the history: measured or simulated
    keeps_time = False  # True where a run that is resumed within an epoch goes on with the epoch's seconds
    keeps_dead = False  # True where dead workers stay dead when the run is resumed
    guest = False  # True for a process that replaces another one, and does not take part yet

    def __init__(self, size: int = 1, processes: Processes | None = None, deterministic: bool = False) -> None:
        self.processes = processes or SingleProcess()
        self.job_processes = self.processes  # all processes of the job, also those that have died; groups are made of them
        self._groups: dict[range, SplittableProcesses] = {}  # range of workers -> the group of processes that host them
        p, count = self.processes.rank, self.processes.size
        if size < count:
            raise ValueError(f"{size} workers on {count} processes")
        self.size, self.deterministic = size, deterministic
        self.bounds = [size * i // count for i in range(count + 1)]
        self.ranks = range(self.bounds[p], self.bounds[p + 1])
        self.fabrics: Sequence[Fabric] = [Fabric(rank, size) for rank in self.ranks]
        self.living = Ranks(range(size))
        self._share_living()
        self.essential = range(0)  # workers without which the others cannot go on: those with a parameter server
        self.lost_with: Callable[[int, int, int], range] = lambda rank, size, node_size: range(rank, rank + 1)  # as a strategy says
        self.elastic: Elasticity | None = None  # of a synchronous job that goes on without workers that die
        self.log: Callable[[str], None] = lambda sentence: None
        self.disagreement = 0.0
        self.update_cosine: float | None = None
        self.last_move: Tensor | None = None  # of the mean, in the average that `update_cosine` is of
        self._overlap_host: Host | None = None  # carries out the exchanges in the background
        self._helper: ThreadPoolExecutor | None = None
        self._device = torch.device("cpu")
        self._side: SideStream | None = None  # of a GPU, for the helper
        self._begun: dict[int, Future[Any]] = {}  # by ticket
        self._last_ticket = 0
        self.cv_frames = 0  # cross-validation frames that are scored at an epoch's end
        self._start = time.perf_counter()
        self.clock = Clock()
        self.forget()
        self._serve: dict[type, Callable[[list[Any]], list[Any]]] = {
            Average: self._average, Mean: self._mean, Begin: self._begin, Finish: self._finish, Sum: self._sum, Maximum: self._maximum,
            Total: self._total, Exchange: self._exchange, Gather: self._gather, Scatter: self._scatter,
            SafePoint: self._safe_point, WithinGroup: self._within_groups, ComputeParts: self._compute_parts}

    def use_device(self, device: torch.device) -> None:
        """Take the workers' seconds by the clock of their device; on a GPU, exchanges in the background get a stream of their own."""
        self.clock = clock_of(device)
        for fabric in self.fabrics:
            fabric.clock = self.clock
        self._device = device

    def forget(self) -> None:
        """Forget the workers of this process, and what is to be done at safe points; the caller sets them."""
        self.workers: Sequence[Worker] = ()
        self.stack_workers(None)
        self.wish: Callable[[], int] = lambda: 0
        self.on_safe_point: Callable[[int], None] = lambda wish: None
        self.state_of: Callable[[int], dict[str, Any]] = lambda rank: {}  # of a worker here and its strategy, for those that join
        self.join: Join | None = None
        self.job_state: Callable[[], dict[str, Any]] = dict  # of the trainer, for processes that join

    def enter(self) -> dict[str, Any]:
        """Wait until this process, a guest, takes part. Returns the states of the trainer, of a worker and of its strategy."""
        raise NotImplementedError(f"{type(self).__name__} has no guests")  # `guest` is true of elastic hosts alone

    def be_elastic(self) -> None:
        """Go on without workers that die, and with those that join."""
        self.elastic = Elasticity(self.size, lambda sentence: self.log(sentence))
        for fabric in self.fabrics:
            fabric.elastic = True

    def stack_workers(self, stack: Stack | None) -> None:
        """Let the workers of this process compute together; None: each by itself."""
        self._stack = stack
        for fabric in self.fabrics:
            fabric.stacked = stack is not None

    def begin_epoch(self) -> None:
        """Reset the times and the disagreement of the epoch before."""
        if self._stack is not None:
            self._stack.begin_epoch()
        self._start = time.perf_counter()
        self.disagreement, self.update_cosine, self.last_move = 0.0, None, None
        for fabric in self.fabrics:
            fabric.seconds = dict.fromkeys(fabric.seconds, 0.0)

    def elapsed(self) -> float:
        """Seconds since the epoch began."""
        return time.perf_counter() - self._start

    def now(self) -> float:
        """Seconds since the epoch began, while it lasts; in a simulation, simulated ones."""
        return self.elapsed()

    def spent(self) -> list[float]:
        """Seconds of this process's workers in this epoch: computing, exchanging, waiting, loading."""
        self.clock.settle()
        for worker in self.workers:
            worker.clock.settle()
        return self.spent_so_far()

    def spent_so_far(self) -> list[float]:
        """As `spent`, without those seconds of a GPU that are not known yet: nobody waits for it."""
        load = sum(worker.load_seconds for worker in self.workers)
        compute, exchange, wait = (sum(fabric.seconds[name] for fabric in self.fabrics) for name in ("compute", "exchange", "wait"))
        return [compute - load, exchange, wait, load]

    def notes(self) -> dict[str, Any]:
        """Further entries for the epoch's line in `history.jsonl`."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint has to hold of the host."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""

    def close(self) -> None:
        """Leave the job, when all processes have called this."""
        self.processes.close()

    def total(self, values: list[float]) -> list[float]:
        """Sum each value over all processes."""
        return self.processes.control(values).tolist()

    def largest(self, values: list[float]) -> float:
        """Return the largest of all processes' values."""
        return float(self.processes.control([max(values)], largest=True)[0])

    def by_rank(self, own: list[Tensor]) -> list[list[float]]:
        """Collect a small tensor from each living worker, all of equal length: as lists in the order of ranks, on every process."""
        parts = self.processes.gather(torch.cat([tensor.cpu() for tensor in own]))
        return torch.cat(parts).view(-1, len(own[0])).tolist()

    def run(self, work: list[Coroutine[Any, Any, Any]]) -> list[Any]:
        """Run one coroutine for each worker of this process to its end, and return their results.

        `on_safe_point` may raise Abandoned, in every process of the job. Then `abandon` has to be called.
        """
        try:
            return self._run(work)
        finally:
            for coroutine in work:
                coroutine.close()

    def abandon(self) -> None:
        """Forget the epoch: all that is under way, and what the checkpoint says of it. Every process has to call this."""
        for begun in self._begun.values():  # all processes have begun it, so it will end
            self._result(begun)
        self._begun.clear()

    def _run(self, work: list[Coroutine[Any, Any, Any]]) -> list[Any]:
        results: list[Any] = [None] * len(work)
        answers: list[Any] = [None] * len(work)
        while True:
            requests = self._go_on(work, answers, results)
            if not requests:
                return results
            kinds = {type(request).__name__ for request in requests}
            if len(requests) < len(work) or len(kinds) > 1:
                raise RuntimeError(f"{len(requests)} of {len(work)} workers wait for {', '.join(sorted(kinds))}: every worker has to make "
                                   "the same requests, as often")
            answers = self._answers_to(requests)

    def _go_on(self, work: list[Coroutine[Any, Any, Any]], answers: list[Any], results: list[Any]) -> list[Request]:
        """Give the workers their answers, and run each up to its next request that others answer, or to its end and its result."""
        requests: dict[int, Request] = {}
        given = dict(enumerate(answers))
        while given:
            computing: dict[int, Compute] = {}
            for i, answer in given.items():
                try:
                    request = work[i].send(answer)
                except StopIteration as end:
                    results[i] = end.value
                    continue
                if isinstance(request, Compute):
                    computing[i] = request
                else:
                    requests[i] = request
            given = self._compute(computing) if computing else {}
        return [requests[i] for i in sorted(requests)]

    def _compute(self, requests: dict[int, Compute]) -> dict[int, Any]:
        """Let stacked workers, by their place among those of this process, compute what they ask for; returns the results."""
        assert self._stack is not None
        before = self.clock.mark()
        results = self._stack.compute({i: request.work for i, request in requests.items()})
        self._timed("compute", before)
        return results

    def _answers_to(self, requests: list[Any]) -> list[Any]:
        """Carry out the requests of all workers of this process, and return the answers."""
        return self._serve[type(requests[0])](requests)

    def _timed(self, what: str, before: Any) -> None:
        """Add the time since the mark `before` to the workers' seconds, under the name `what`, in equal parts."""
        self.clock.add(before, what, [fabric.seconds for fabric in self.fabrics])

    def _control(self, values: list[float] | np.ndarray, largest: bool = False) -> np.ndarray:
        """Sum a few numbers over all processes. The time until all have given theirs counts as waiting."""
        before = self.clock.mark()
        result = self.processes.control(values, largest)
        self._timed("wait", before)
        return result

    def _by_rank(self, values: list[float]) -> np.ndarray:
        """Collect one number of each worker, in the order of ranks, on every process; 0 for a dead worker."""
        table = np.zeros(self.size)
        table[self.living_here()] = values
        return self._control(table)

    def _share_living(self) -> None:
        for fabric in self.fabrics:
            fabric.living = self.living

    def living_here(self) -> list[int]:
        """The ranks of this process's workers that have not died."""
        return [rank for rank in self.ranks if rank in self.living]

    def _average(self, requests: list[Average]) -> list[None]:
        weights = self._by_rank([r.weight for r in requests])
        if not weights.any():
            return [None] * len(requests)
        before = self.clock.mark()
        buffers = [r.buffer for r in requests]
        own = buffers[0].clone() if requests[0].measure else None
        self._add(self.processes, buffers, *self._factors(weights))
        if own is not None:
            self._measure([own, *buffers[1:]], buffers[0], requests[0].since, weights)
        self._hand_out(buffers)
        self._timed("exchange", before)
        if self.elastic:
            self.elastic.settle(self.living)
        return [None] * len(requests)

    def _factors(self, weights: np.ndarray) -> tuple[list[float], float]:
        """Return (the factor of each buffer here, the factor of their sum) of a weighted mean."""
        living = weights[self.living]
        if (living == living[0]).all():  # no pass over the buffers before the sum
            return [1.0] * len(self.living_here()), 1.0 / len(self.living)
        return (weights / weights.sum())[self.living_here()].tolist(), 1.0

    def _mean(self, requests: list[Mean]) -> list[Tensor]:
        factors, scale = self._factors(self._by_rank([r.weight for r in requests]))
        before = self.clock.mark()
        first, *others = [r.buffer for r in requests]
        mean = first.clone()
        self._add(self.processes, [mean, *others], factors, scale)
        self._timed("exchange", before)
        return [mean] * len(requests)

    def _begin(self, requests: list[Begin]) -> list[int]:
        if self._helper is None:
            self._overlap_host = Host(self.size, self.processes.duplicate(), self.deterministic)
            self._helper = ThreadPoolExecutor(1, "exchange")
            self._side = SideStream(self._device) if self._device.type == "cuda" else None
        assert self._overlap_host is not None
        self._last_ticket += 1
        exchange = partial(self._overlap_host.run, [r.exchange for r in requests])
        self._begun[self._last_ticket] = (self._helper.submit(exchange) if self._side is None else
                                          self._helper.submit(self._side.run, self._side.begin(), exchange))
        return [self._last_ticket] * len(requests)

    def _compute_parts(self, requests: list[ComputeParts]) -> list[tuple[Any, list[int]]]:
        tickets: list[int] = []

        def ready(number: int) -> None:
            while len(tickets) <= number:
                tickets.append(self._begin([Begin(r.exchange(len(tickets))) for r in requests])[0])

        before = self.clock.mark()
        if self._stack is not None:
            made = self._stack.compute({i: r.work for i, r in enumerate(requests)})
            results = [made[i] for i in range(len(requests))]
        else:
            results = [r.work() for r in requests[:-1]]
            results.append(requests[-1].work(parts=Parts(requests[-1].slices, ready)))
        ready(len(requests[-1].slices) - 1)
        self._timed("compute", before)
        return [(result, tickets) for result in results]

    def _result(self, begun: Future[Any]) -> list[Any]:
        """Wait for the end of an exchange in the background, and return its results."""
        return begun.result() if self._side is None else self._side.finish(begun.result())

    def _finish(self, requests: list[Finish]) -> list[Any]:
        before = self.clock.mark()
        results = self._result(self._begun.pop(requests[0].ticket))
        self._timed("exchange", before)
        return results

    def _measure(self, buffers: list[Tensor], mean: Tensor, since: Tensor | None, weights: np.ndarray) -> None:
        """Record the distance of the workers' buffers from their mean, and the cosine between their moves. The buffers are overwritten."""
        move = None if since is None else mean - since
        far, along = [], []  # of each worker: its distance from the mean, and how far that goes the mean's way
        for buffer in buffers:
            buffer.sub_(mean)
            far.append(float(torch.linalg.vector_norm(buffer)))
            along.append(0.0 if move is None else float(torch.dot(buffer, move)))
        distances = self._by_rank(far)
        self.disagreement = float(distances.sum()) / len(self.living) / (float(torch.linalg.vector_norm(mean)) or 1.0)
        if move is None:
            return
        moved = float(torch.dot(move, move))
        squares = np.maximum(np.square(distances) + moved + 2 * self._by_rank(along), 0.0)  # of the workers' moves
        share = weights / weights.sum()
        length, of_pairs = float(share @ squares), 1.0 - float(share @ share)
        if length > 0.0 and of_pairs > 1e-9:
            self.update_cosine = (moved - float(share**2 @ squares)) / (of_pairs * length)
        self.last_move = move

    def _sum(self, requests: list[Sum]) -> list[float]:
        values = [r.value for r in requests if r.value is not None]
        total = float(self._by_rank(values).sum()) if values else 0.0
        before = self.clock.mark()
        buffers = [r.buffer for r in requests]
        self._add(self.processes, buffers, [1.0] * len(buffers), 1.0)
        self._hand_out(buffers)
        self._timed("exchange", before)
        return [total] * len(requests)

    def _hand_out(self, buffers: list[Tensor]) -> None:
        for buffer in buffers[1:]:
            buffer.copy_(buffers[0])

    def _add(self, processes: Processes, buffers: list[Tensor], factors: list[float], scale: float) -> None:
        """Sum over all workers: the first buffer <- scale sum_k factor_k buffer_k. The other buffers stay as they are."""
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
        """Do the same as `_add` in the order of the workers' ranks. Each process sums one stripe of the buffer."""
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

    def _within_groups(self, requests: list[WithinGroup]) -> list[float]:
        values: list[float] = []
        while len(values) < len(requests):
            members = requests[len(values)].members
            values += self._within([r for r in requests if r.members == members])
        return values

    def _within(self, requests: list[WithinGroup]) -> list[float]:
        """Carry out the requests of all workers of one group in this process."""
        before, first = self.clock.mark(), requests[0]
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

    def _group(self, members: range) -> SplittableProcesses:
        """The processes that host a group of workers. Raises UserError where they host other workers too."""
        if members not in self._groups:
            hosting = [p for p, (a, b) in enumerate(itertools.pairwise(self.bounds)) if a < members.stop and b > members.start]
            if self.bounds[hosting[0]] != members.start or self.bounds[hosting[-1] + 1] != members.stop:
                raise UserError(f"the workers {members.start} to {members.stop - 1} form a synchronous group, and the processes that "
                                "host them host other workers too; use as many processes (--nproc) as workers, or groups of whole "
                                "processes (--group-size).")
            assert isinstance(self.job_processes, SplittableProcesses)
            self._groups[members] = self.job_processes.group(hosting)
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
        """Scatter parts between workers. parts[i][k] goes from the i-th worker here to worker k.

        Result[i][k] comes from worker k to the i-th here.
        """
        if self.processes.size == 1:
            return [[parts[k][i] for k in range(self.size)] for i in range(self.size)]
        table = np.zeros((self.size, self.size))
        table[self.ranks.start : self.ranks.stop] = [[len(part) for part in own] for own in parts]
        table = self._control(table.ravel()).reshape(self.size, self.size).astype(int)
        before = self.clock.mark()
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
            before = self.clock.mark()
            buffers = list(torch.cat(self.processes.gather(torch.cat(buffers))).split(lengths))
            self._timed("exchange", before)
        return [buffers] * len(requests)
