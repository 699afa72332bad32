"""The host of asynchronous workers, over as many processes as there are, in real time.

The coroutines of a process's workers run on its main thread, each until it has to wait. They compute there. A second thread reads the
messages that arrive from other processes (`parallel/transport`) and handles them: the workers' handlers answer calls while the main thread
computes. The main thread handles messages itself where it polls. One lock makes sure that only one handler runs at a time, and none within
`hold_calls`.

    calls          each has an answer; some are served in turn (`remote_calls.py`)
    take, more     process 0 has the queue of the epoch's minibatches, and makes the job rest for a checkpoint (`work_requests.py`)
    groups         the workers of a group exchange by a group of the processes that MPI, NCCL or gloo provides
    all            requests that all workers make together go through process 0 (`live_group.py`)

Deaths. Where the strategy is fault tolerant, the workers of a process that has ended count as dead. Workers that wait for an answer of
theirs get none. Others do their unsettled minibatches again. Exchanges of all workers are those of the living ones. A process whose group
has lost another one would wait for it for ever, and ends too. The job ends with process 0 and those of its group, and with a process whose
workers are essential (those with a parameter server). A job that is run again has all its workers.

The order of events depends on the machine, so no two runs are alike. The runs of a `Simulation` are.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from typing import Any, NoReturn

import torch
from torch import Tensor

from pykaldist.errors import Abandoned, ProcessLostError, Terminated
from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.engines.live_group import LiveGroup
from pykaldist.parallel.engines.remote_calls import RemoteCalls
from pykaldist.parallel.engines.work_requests import WorkRequest, WorkRequests
from pykaldist.parallel.fabric.interface import (
    Average,
    AwaitAnswer,
    Call,
    Fabric,
    Handler,
    MoreMinibatches,
    Request,
    TakeMinibatch,
    WithinGroup,
)
from pykaldist.parallel.fabric.minibatch_queue import MinibatchQueue, MinibatchSources
from pykaldist.parallel.fabric.processes import Processes
from pykaldist.parallel.transport.transport import FAILED, RESULT, SHARE, WORK_ANSWER, WORK_REQUEST, Transport

NEWS_S = 5.0  # in which the death of a process is known to the others
SOURCES = 2  # splits that stay open, for each worker here


def _lost(sentence: str) -> NoReturn:
    raise ProcessLostError(sentence)


def _named(ranks: range) -> str:
    return f"worker {ranks.start}" if len(ranks) == 1 else f"workers {ranks.start} to {ranks.stop - 1}"


class ConcurrentFabric(Fabric):
    """The operations of one asynchronous worker."""

    def __init__(self, rank: int, host: ConcurrentHost) -> None:
        super().__init__(rank, host.size)
        self._host = host

    @property
    def answers_while_computing(self) -> bool:
        return self._host.transport is not None

    def hold_calls(self) -> AbstractContextManager[object]:
        return self._host.changed

    def lend(self, like: Tensor) -> Tensor:
        assert self._host.transport is not None
        return self._host.transport.lend(like)

    def polling(self) -> AbstractContextManager[object]:
        assert self._host.transport is not None
        return self._host.transport.polling()

    def poll(self) -> None:
        assert self._host.transport is not None
        self._host.transport.poll()

    def poll_answer(self, ticket: int) -> tuple[Tensor | None, float] | None:
        return self._host.calls.poll_answer(ticket)

    def serve(self, handler: Handler) -> None:
        with self._host.changed:
            self.handler = handler
            self._host.calls.answer_early_calls()


class ConcurrentHost(Host):
    """Runs asynchronous workers.

    `fault_tolerant`: the strategy goes on when workers die. `names`: the machine of each process. `interface`: the network interface to
    listen at, if the user has named one.

    A job of one process needs no lock: calls are answered between the workers' turns.
    """

    def __init__(self, size: int, processes: Processes | None, fault_tolerant: bool, names: list[str], interface: str = "") -> None:
        super().__init__(size, processes)
        self.fault_tolerant, self._names = fault_tolerant, names
        self.transport: Transport | None = None
        self.changed = threading.Condition(threading.RLock())
        if self.processes.size > 1:
            self.transport = Transport(self.processes, self._handle_message, self._handle_death, interface)
            self.changed = self.transport.changed
            self.processes = self._live = LiveGroup(self.transport)
        self.fabrics: Sequence[ConcurrentFabric] = [ConcurrentFabric(rank, self) for rank in self.ranks]
        self._share_living()
        self._ready: deque[tuple[int, Any]] = deque()
        self.leave: Callable[[str], object] = _lost  # ends this process, whatever its main thread does
        self.calls = RemoteCalls(self, self._be_ready)
        self._requests = WorkRequests(self, self._be_ready, lambda index, minibatch: self._sources.assign(self.workers[index], minibatch))
        self._resume: dict[str, Any] | None = None
        self._running = False
        if self.transport:
            self.transport.start()

    def forget(self) -> None:
        super().forget()
        self._sources = MinibatchSources(lambda split: self.workers[split].sampler, 0, 0)  # those of the last epoch hold frames

    def begin_epoch(self) -> None:
        super().begin_epoch()
        for fabric in self.fabrics:
            fabric.staleness.clear()

    def notes(self) -> dict[str, Any]:
        late = sum((fabric.staleness for fabric in self.fabrics), Counter())
        pairs = torch.tensor([[float(k), float(n)] for k, n in late.items()], dtype=torch.float64).flatten()
        total: Counter[int] = Counter()
        for part in self.processes.gather(pairs):
            for k, n in part.view(-1, 2).tolist():
                total[int(k)] += int(n)
        ends, busy = self.total([float(self.calls.num_servers), self.calls.busy])
        load = {"server_load": busy / ends / self.elapsed()} if ends else {}
        dead = [rank for rank in range(self.size) if rank not in self.living]
        return {"staleness": {str(k): total[k] for k in sorted(total)}, **load, **({"dead": dead} if dead else {})}

    def state_dict(self) -> dict[str, Any]:
        return {"minibatches": self._requests.minibatches.state_dict()} if self._running and self._requests.minibatches else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._resume = state.get("minibatches")

    # Driving the workers here.

    def _run(self, work: list[Coroutine[Any, Any, Any]]) -> list[Any]:
        try:
            return self._run_epoch(work)
        except (Abandoned, Terminated):
            raise
        except BaseException:
            if self.transport:
                self.transport.close(FAILED)
            raise

    def _run_epoch(self, work: list[Coroutine[Any, Any, Any]]) -> list[Any]:
        with self.changed:
            self._ready.clear()
            self.calls.reset()
            self._requests.reset()
        self._work, self._results = work, [None] * len(work)
        self._going = set(range(len(work)))
        self._parked: dict[int, Request] = {}
        self._joined: dict[int, WithinGroup] = {}
        self._waits_for = ["wait"] * len(work)  # name under which the time until a worker's answer is counted
        self._open_minibatches()
        self._running = True
        self._ready.extend((index, None) for index in range(len(work)))
        while self._going:
            if self._wait():
                self._drive()
                self._meet()
            elif len(self._requests.paused) < len(self._going):
                raise RuntimeError("every worker waits for another")
            else:
                self._pause()
        self._close_minibatches()
        return self._results

    def _close_minibatches(self) -> None:
        """End the epoch: no more minibatches, and no more calls."""
        self._running = False
        with self.changed:
            self._requests.minibatches = None
            for fabric in self.fabrics:
                fabric.handler = None

    def abandon(self) -> None:
        """Forget the epoch. All processes have to call this; the workers were at rest then, with nothing under way."""
        super().abandon()
        self._resume = None
        self._close_minibatches()
        self.processes.barrier()

    def _open_minibatches(self) -> None:
        """Count the epoch's minibatches, and open their queue on process 0."""
        sampler = self.workers[0].sampler if self.workers else None
        own = [torch.tensor([float(worker.sampler.minibatches)]) for worker in self.workers]
        table = self.by_rank(own) if own else []
        rows = dict(zip(self._counted(), table, strict=False))
        counts = [int(rows[rank][0]) if rank in rows else sampler.of_split(rank).minibatches if sampler else 0 for rank in range(self.size)]
        epoch = self.workers[0].epoch if self.workers else 0
        here = {rank: worker.sampler for rank, worker in zip(self.ranks, self.workers, strict=False)}
        self._sources = MinibatchSources(lambda split: here.get(split) or self.workers[0].sampler.of_split(split), epoch,
                                         SOURCES * len(self.ranks))
        if self.job_processes.rank == 0:
            with self.changed:
                minibatches = MinibatchQueue(counts)
                if self._resume is not None:
                    minibatches.load_state_dict(self._resume)
                for rank in range(self.size):
                    if rank not in self.living:
                        minibatches.remove_dead(rank)
                self._requests.open(minibatches)
        self._resume = None

    def _counted(self) -> list[int]:
        """The workers whose data was in the last exchange of all."""
        members = self._live.members if self.transport else [0]
        return [rank for p in members for rank in range(self.bounds[p], self.bounds[p + 1])]

    def _wait(self) -> bool:
        """Wait until a worker here can go on. Returns False where all are to pause."""
        before = self.clock.mark()
        with self.changed:
            if self.transport:
                self.transport.wait(lambda: self._ready or len(self._requests.paused) == len(self._going))
            if not self._ready:
                return False
            index = self._ready[0][0]
        self.clock.add(before, self._waits_for[index], [self.fabrics[index].seconds])
        return True

    def _drive(self) -> None:
        """Run the first worker that can go on, as far as possible. Its answer is not kept here, as it may be lent."""
        index, answer = self._ready.popleft()
        while True:
            try:
                request = self._work[index].send(answer)
            except StopIteration as end:
                self._results[index] = end.value
                self._going.discard(index)
                return
            waits, answer = self._ask(index, request)
            if waits:
                return

    def _ask(self, index: int, request: Request) -> tuple[bool, Any]:
        """Handle a worker's request. Returns (the worker has to wait, the answer if it has not)."""
        rank = self.ranks[index]
        self._waits_for[index] = "exchange" if isinstance(request, AwaitAnswer) else "wait"
        if isinstance(request, TakeMinibatch | MoreMinibatches):
            takes = isinstance(request, TakeMinibatch)
            with self.changed:
                self._requests.ask(index, WorkRequest(rank, takes, request.queue, request.unsettled, request.group, self.wish()))
        elif isinstance(request, Call):
            with self.changed:
                return False, self.calls.begin(index, request)
        elif isinstance(request, AwaitAnswer):
            with self.changed:
                answer = self.calls.wait(index, request.ticket)
            return answer is None, answer
        elif isinstance(request, WithinGroup):
            self._joined[index] = request
            together = [i for i, other in self._joined.items() if other.members == request.members]
            if len(together) == sum(rank in request.members for rank in self.ranks):
                together.sort()
                self._answer(together, self._within([self._joined.pop(i) for i in together]))
        else:
            self._parked[index] = request
        return True, None

    def _answer(self, indices: list[int], answers: list[Any]) -> None:
        with self.changed:
            self._ready.extend(zip(indices, answers, strict=True))

    def _meet(self) -> None:
        """Carry out the requests that all workers of the job make together, when all here have made theirs."""
        if self._going and len(self._parked) == len(self._going):
            indices = sorted(self._parked)
            requests = [self._parked[index] for index in indices]
            kinds = {type(request).__name__ for request in requests}
            if len(requests) < len(self.ranks) or len(kinds) > 1:
                raise RuntimeError(f"{len(requests)} of {len(self.ranks)} workers wait for {', '.join(sorted(kinds))}: every worker has to "
                                   "make the same requests, as often")
            self._parked = {}
            self._answer(indices, self._serve[type(requests[0])](requests))

    def _average(self, requests: list[Average]) -> list[None]:
        """Sum models and weights in one exchange, so that the mean is that of the workers in it, whoever dies meanwhile."""
        if not self.transport:
            return super()._average(requests)
        before, first = self.clock.mark(), requests[0].buffer
        total = torch.cat([first * requests[0].weight, first.new_tensor([sum(r.weight for r in requests)])])
        for r in requests[1:]:
            total[:-1].add_(r.buffer, alpha=r.weight)
        self.processes.sum(total, 1.0)
        if total[-1]:
            mean = total[:-1].div_(total[-1].clone())
            if requests[0].measure:
                norm = torch.linalg.vector_norm(mean)
                far = [float(torch.linalg.vector_norm(r.buffer - mean) / norm) for r in requests]
                sums = self._control([sum(far), len(far)])
                self.disagreement = float(sums[0] / sums[1])
            for r in requests:
                r.buffer.copy_(mean)
        self._timed("exchange", before)
        return [None] * len(requests)

    def _within(self, requests: list[WithinGroup]) -> list[float]:
        """Broadcast a copy of the first worker's model: calls may change the model itself meanwhile, and this must not be undone."""
        first = requests[0]
        if first.sums or not self.transport:
            return self._exchanged(requests)
        with self.changed:
            model = first.buffer.clone()
        handed = [WithinGroup(buffer, 0.0, first.members, False) for buffer in (model, *(r.buffer for r in requests[1:]))]
        answers = self._exchanged(handed)
        if first.members.start not in self.ranks:
            first.buffer.copy_(model)
        return answers

    def _exchanged(self, requests: list[WithinGroup]) -> list[float]:
        """Carry out an exchange within a group. It fails where one of the group has died: then the thread that reads ends this process."""
        try:
            return super()._within(requests)
        except ProcessLostError:
            if self.fault_tolerant and self.transport:
                time.sleep(NEWS_S)
            raise

    # Messages that arrive. The methods below run with the lock held, on the main thread or on the thread that reads.

    def _handle_message(self, peer: int, kind: int, numbers: list[float], buffer: Tensor | None) -> None:
        """Pass a message on to the part that it is for."""
        if kind in (SHARE, RESULT):
            assert buffer is not None
            self._live.deliver(peer, numbers, buffer)
        elif kind in (WORK_REQUEST, WORK_ANSWER):
            self._requests.handle_message(kind, numbers)
        else:
            self.calls.handle_message(peer, kind, numbers, buffer)

    def _be_ready(self, index: int, answer: Any) -> None:
        """Note that worker number `index` here can go on with an answer."""
        self._ready.append((index, answer))

    def hosting(self, rank: int) -> int:
        """The process that hosts a worker."""
        return next(p for p in range(len(self.bounds) - 1) if rank < self.bounds[p + 1])

    def handler(self, rank: int) -> Handler | None:
        """The function that answers calls to a worker of this process."""
        return self.fabrics[rank - self.ranks.start].handler

    def on_device(self, buffer: Tensor | None) -> Tensor | None:
        """A buffer that has arrived, copied to the device of this process's workers."""
        return buffer.to(self.workers[0].params.device) if buffer is not None and self.workers else buffer

    def _pause(self) -> None:
        """Take a checkpoint if one is wanted, while all workers of the job are at rest. On the main thread."""
        wish = int(self._control([float(self.wish())], largest=True)[0])
        with self.changed:
            self._requests.rested()
        if wish:
            self.on_safe_point(wish)
        self.processes.barrier()
        with self.changed:
            self._requests.go_on()

    # Deaths.

    def _handle_death(self, peer: int) -> None:
        """Note that process `peer` has ended. Raises ProcessLostError where the job cannot go on without it."""
        ranks, where = range(self.bounds[peer], self.bounds[peer + 1]), f"process {peer} on {self._names[peer]}"
        group = self.lost_with(ranks.start, self.size, self.fabrics[0].node_size)
        if not self.fault_tolerant or 0 in group or not set(self.essential).isdisjoint(ranks):
            raise ProcessLostError(f"{where} has died")
        if self.ranks.start in group:
            self.leave(f"{where} has died, and this process, of the same group, leaves the job")
        first = all(rank in self.living for rank in group)
        for rank in ranks:
            self.living.remove(rank)
        self.calls.remove_dead(peer, ranks)
        if self.job_processes.rank == 0:
            again = self._requests.remove_dead(ranks)
            with_it = f"and with it {_named(ranks)}" + f", whose group, {_named(group)}, leaves the job" * (len(group) > len(ranks))
            what = f"has died, {with_it}" if first else "is gone with its group"
            going = sum(rank not in group for rank in self.living)
            self.log(f"{where} {what}; {going} go on, and do {again} minibatches again")

    def close(self) -> None:
        if not self.transport:
            super().close()
            return
        self.processes.barrier()
        self.transport.close()
        if not self.fault_tolerant:  # otherwise a process may have died, and closing would wait for it for ever
            self.job_processes.close()
