"""A host whose workers go each their own way, over as many processes as there are: what they do meets in real time.

The coroutines of a process's workers run on its main thread, each until it has to wait for something; they compute there. Whatever arrives
from other processes (`parallel/transport`) is dealt with by the threads that read it: calls are answered by the workers' handlers,
while the main thread computes, or by that itself where it looks about. One lock keeps handlers from each other and from `alone`.

    calls          each with an answer, and in turn where it is to be so (`remote_calls.py`).
    take, more     process 0 keeps the books of the epoch's minibatches, and lets the job rest for a checkpoint (`work_requests.py`).
    a group        goes in step by a group of the processes that MPI, NCCL or gloo provides.
    all            what all workers ask for goes through process 0 (`live_group.py`).

Deaths. Where the strategy survives that, the workers of a process that has ended count as dead: who waits for an answer of theirs gets
none, what they had not settled is done again by others, and exchanges of all are of the others. With process 0, or one whose workers are
essential (a parameter server's), the job ends. A job that is run again has all its workers.

How events interleave depends on the machine, so no two runs are alike; those of a `Simulation` are.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Coroutine
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from pykaldist.errors import Abandoned, ProcessLostError, Terminated
from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.engines.live_group import LiveGroup
from pykaldist.parallel.engines.remote_calls import Calls
from pykaldist.parallel.engines.work_requests import Question, Questions
from pykaldist.parallel.fabric.interface import Average, Call, Done, Fabric, Handler, More, Request, Take, Within
from pykaldist.parallel.fabric.minibatch_queue import Sources, Work
from pykaldist.parallel.fabric.processes import Processes
from pykaldist.parallel.transport.transport import ASK, FAILED, RESULT, SHARE, TOLD, Transport

SOURCES = 2  # splits at hand for each worker


class ConcurrentFabric(Fabric):
    """One worker's end."""

    def __init__(self, rank: int, host: Concurrent) -> None:
        super().__init__(rank, host.size)
        self._host = host

    @property
    def answers_meanwhile(self) -> bool:
        return self._host.transport is not None

    def alone(self) -> AbstractContextManager[object]:
        return self._host.changed

    def lend(self, like: Tensor) -> Tensor:
        assert self._host.transport is not None
        return self._host.transport.lend(like)

    def attending(self) -> AbstractContextManager[object]:
        assert self._host.transport is not None
        return self._host.transport.attending()

    def look(self) -> None:
        assert self._host.transport is not None
        self._host.transport.look()

    def come(self, ticket: int) -> tuple[Tensor | None, float] | None:
        return self._host.calls.come(ticket)

    def serve(self, handler: Handler) -> None:
        with self._host.changed:
            self.handler = handler
            self._host.calls.answer_early()


class Concurrent(Host):
    """`survives`: the strategy does without workers that die. `names`: the processes' hosts. `interface`: the network
    interface to listen at, if the user has named one.

    A process that is alone needs no lock: what happens, happens between its workers' turns.
    """

    def __init__(self, size: int, processes: Processes | None, survives: bool, names: list[str], interface: str = "") -> None:
        super().__init__(size, processes)
        self.survives, self._names = survives, names
        self.transport: Transport | None = None
        self.changed = threading.Condition(threading.RLock())
        if self.processes.size > 1:
            self.transport = Transport(self.processes, self._heed, self._lost, interface)
            self.changed = self.transport.changed
            self.processes = self._live = LiveGroup(self.transport)
        self.fabrics: list[ConcurrentFabric] = [ConcurrentFabric(rank, self) for rank in self.ranks]
        self._share_living()
        self._ready: deque[tuple[int, Any]] = deque()
        self.calls = Calls(self, self._be_ready)
        self._questions = Questions(self, self._be_ready, lambda place, minibatch: self._sources.point(self.workers[place], minibatch))
        self._resume: dict[str, Any] | None = None
        self._running = False
        if self.transport:
            self.transport.start()

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
        ends, busy = self.total([float(self.calls.ends), self.calls.busy])
        load = {"server_load": busy / ends / self.elapsed()} if ends else {}
        dead = [rank for rank in range(self.size) if rank not in self.living]
        return {"staleness": {str(k): total[k] for k in sorted(total)}, **load, **({"dead": dead} if dead else {})}

    def state_dict(self) -> dict[str, Any]:
        return {"books": self._questions.books.state_dict()} if self._running and self._questions.books else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._resume = state.get("books")

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
            self._questions.reset()
        self._work, self._results = work, [None] * len(work)
        self._going = set(range(len(work)))
        self._parked: dict[int, Request] = {}
        self._joined: dict[int, Within] = {}
        self._waits_for = ["wait"] * len(work)  # what the time until a worker's answer is counted as
        self._open_books()
        self._running = True
        self._ready.extend((place, None) for place in range(len(work)))
        while self._going:
            if self._wait():
                self._drive()
                self._meet()
            elif len(self._questions.paused) < len(self._going):
                raise RuntimeError("every worker waits for another")
            else:
                self._pause()
        self._close_books()
        return self._results

    def _close_books(self) -> None:
        self._running = False
        with self.changed:
            self._questions.books = None
            for fabric in self.fabrics:
                fabric.handler = None

    def abandon(self) -> None:
        """Nobody begins anew before all have come here; they were at rest, with nothing under way."""
        super().abandon()
        self._resume = None
        self._close_books()
        self.processes.barrier()

    def _open_books(self) -> None:
        sampler = self.workers[0].sampler if self.workers else None
        own = [torch.tensor([float(worker.sampler.minibatches)]) for worker in self.workers]
        table = self.by_rank(own) if own else []
        rows = dict(zip(self._counted(), table, strict=False))
        counts = [int(rows[rank][0]) if rank in rows else sampler.of_split(rank).minibatches if sampler else 0 for rank in range(self.size)]
        epoch = self.workers[0].epoch if self.workers else 0
        here = {rank: worker.sampler for rank, worker in zip(self.ranks, self.workers, strict=False)}
        self._sources = Sources(lambda split: here.get(split) or self.workers[0].sampler.of_split(split), epoch, SOURCES * len(self.ranks))
        if self.between.rank == 0:
            with self.changed:
                books = Work(counts)
                if self._resume is not None:
                    books.load_state_dict(self._resume)
                for rank in range(self.size):
                    if rank not in self.living:
                        books.lose(rank)
                self._questions.open(books)
        self._resume = None

    def _counted(self) -> list[int]:
        """The workers whose share was in the last exchange of all."""
        members = self._live.members if self.transport else [0]
        return [rank for p in members for rank in range(self.bounds[p], self.bounds[p + 1])]

    def _wait(self) -> bool:
        """Until a worker here can go on; False where all are to pause."""
        before = time.perf_counter()
        with self.changed:
            if self.transport:
                self.transport.wait(lambda: self._ready or len(self._questions.paused) == len(self._going))
            if not self._ready:
                return False
            place = self._ready[0][0]
        self.fabrics[place].seconds[self._waits_for[place]] += time.perf_counter() - before
        return True

    def _drive(self) -> None:
        """Let the first worker that can go on do so, as far as it can. What it is given is not kept: it may be lent."""
        place, answer = self._ready.popleft()
        while True:
            try:
                request = self._work[place].send(answer)
            except StopIteration as end:
                self._results[place] = end.value
                self._going.discard(place)
                return
            waits, answer = self._ask(place, request)
            if waits:
                return

    def _ask(self, place: int, request: Request) -> tuple[bool, Any]:
        """(the worker has to wait, its answer if it has not)."""
        rank = self.ranks[place]
        self._waits_for[place] = "exchange" if isinstance(request, Done) else "wait"
        if isinstance(request, Take | More):
            takes = isinstance(request, Take)
            group = request.group if isinstance(request, Take) else range(rank, rank + 1)
            with self.changed:
                self._questions.ask(place, Question(rank, takes, request.queue, request.kept, group, self.wish()))
        elif isinstance(request, Call):
            with self.changed:
                return False, self.calls.begin(place, request)
        elif isinstance(request, Done):
            with self.changed:
                answer = self.calls.wait(place, request.ticket)
            return answer is None, answer
        elif isinstance(request, Within):
            self._joined[place] = request
            together = [i for i, other in self._joined.items() if other.members == request.members]
            if len(together) == sum(rank in request.members for rank in self.ranks):
                together.sort()
                self._answer(together, self._within([self._joined.pop(i) for i in together]))
        else:
            self._parked[place] = request
        return True, None

    def _answer(self, places: list[int], answers: list[Any]) -> None:
        with self.changed:
            self._ready.extend(zip(places, answers, strict=True))

    def _meet(self) -> None:
        """Serve what all workers here ask for, as all workers of the job do."""
        if self._going and len(self._parked) == len(self._going):
            places = sorted(self._parked)
            requests = [self._parked[place] for place in places]
            kinds = {type(request).__name__ for request in requests}
            if len(requests) < len(self.ranks) or len(kinds) > 1:
                raise RuntimeError(f"{len(requests)} of {len(self.ranks)} workers wait for {', '.join(sorted(kinds))}: every worker has to "
                                   "make the same requests, as often")
            self._parked = {}
            self._answer(places, self._serve[type(requests[0])](requests))

    def _average(self, requests: list[Average]) -> list[None]:
        """Models and weights in one exchange, so that the mean is of those who are in it, whoever dies meanwhile."""
        if not self.transport:
            return super()._average(requests)
        before, first = time.perf_counter(), requests[0].buffer
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

    def _within(self, requests: list[Within]) -> list[float]:
        """What is handed down is the model as it is now; calls may change it meanwhile, and must not be undone."""
        first = requests[0]
        if first.sums or not self.transport:
            return super()._within(requests)
        with self.changed:
            model = first.buffer.clone()
        handed = [Within(buffer, 0.0, first.members, False) for buffer in (model, *(r.buffer for r in requests[1:]))]
        answers = super()._within(handed)
        if first.members.start not in self.ranks:
            first.buffer.copy_(model)
        return answers

    # Everything that arrives. All of what follows runs with the lock, on the main thread or on one that reads.

    def _heed(self, peer: int, kind: int, numbers: list[float], buffer: Tensor | None) -> None:
        if kind in (SHARE, RESULT):
            assert buffer is not None
            self._live.deliver(peer, numbers, buffer)
        elif kind in (ASK, TOLD):
            self._questions.heed(kind, numbers)
        else:
            self.calls.heed(peer, kind, numbers, buffer)

    def _be_ready(self, place: int, answer: Any) -> None:
        self._ready.append((place, answer))

    def hosting(self, rank: int) -> int:
        """A worker's process."""
        return next(p for p in range(len(self.bounds) - 1) if rank < self.bounds[p + 1])

    def handler(self, rank: int) -> Handler | None:
        """Of a worker here."""
        return self.fabrics[rank - self.ranks.start].handler

    def on_device(self, buffer: Tensor | None) -> Tensor | None:
        """What has arrived, where the workers here are."""
        return buffer.to(self.workers[0].params.device) if buffer is not None and self.workers else buffer

    def _pause(self) -> None:
        """All workers of the job are at rest, or will be. On the main thread."""
        wish = int(self._control([float(self.wish())], largest=True)[0])
        with self.changed:
            self._questions.rested()
        if wish:
            self.on_safe_point(wish)
        self.processes.barrier()
        with self.changed:
            self._questions.go_on()

    # Deaths.

    def _lost(self, peer: int) -> None:
        """A process has ended."""
        ranks, where = range(self.bounds[peer], self.bounds[peer + 1]), f"process {peer} on {self._names[peer]}"
        if peer == 0 or not self.survives or not set(self.essential).isdisjoint(ranks):
            raise ProcessLostError(f"{where} has died")
        for rank in ranks:
            self.living.remove(rank)
        self.calls.lose(peer, ranks)
        if self.between.rank == 0:
            again = self._questions.lose(ranks)
            workers = f"worker {ranks.start}" if len(ranks) == 1 else f"workers {ranks.start} to {ranks.stop - 1}"
            self.say(f"{where} has died, and with it {workers}; {len(self.living)} go on, and do {again} minibatches again")

    def close(self) -> None:
        if not self.transport:
            super().close()
            return
        self.processes.barrier()
        self.transport.close()
        if not self.survives:  # else someone may be missing, and wait for whom?
            self.between.close()
