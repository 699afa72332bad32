"""A host whose workers go each their own way, over as many processes as there are: what they do meets in real time.

The coroutines of a process's workers run on its main thread, each until it has to wait for something; they compute there. Whatever arrives
from other processes (`parallel/peers.py`) is dealt with by the threads that read it: calls are answered by the workers' handlers,
while the main thread computes. One lock keeps handlers from each other and from `alone`.

    call           the caller's message, the answer.
    call in turn   a knock; what it brings is granted, one after the other, or denied; then as a call. The end is free again when the
                   last byte of the answer has left.
    take, more     process 0 keeps the books of the epoch's minibatches (`parallel/work.py`); the others ask it.
    a group        goes in step by a group of the processes that MPI, NCCL or gloo provides.
    all            what all workers ask for goes through process 0 (`parallel/survivors.py`).

Checkpoints. Where a process wants one, process 0 answers with a pause whoever asks for a minibatch next; all of a group, or none. A worker
that asks has nothing under way. When all have been answered so, the job is at rest, and they ask again after it.

Deaths. Where the strategy survives that, the workers of a process that has ended count as dead: who waits for an answer of theirs gets
none, what they had not settled is done again by others, and exchanges of all are of the others. With process 0, or one whose workers are
essential (a parameter server's), the job ends. A job that is run again has all its workers.

How events interleave depends on the machine, so no two runs are alike; those of a `Simulation` are.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pykaldist.errors import Terminated
from pykaldist.parallel.fabric import Average, Call, Done, Fabric, Handler, More, Request, Take, Within
from pykaldist.parallel.host import Host
from pykaldist.parallel.peers import FAILED, Peers
from pykaldist.parallel.processes import Processes
from pykaldist.parallel.survivors import Survivors
from pykaldist.parallel.work import Place, Sources, Work

# Kinds of messages, those of `peers` being 0 and 1.
SHARE, RESULT, CALL, ANSWER, KNOCK, GRANT, ASK, TOLD = range(2, 10)
TAKEN, NOTHING_NOW, GO_ON, OVER, PAUSE = range(5)  # what process 0 tells a worker that asks
SOURCES = 2  # splits at hand for each worker


class ConcurrentFabric(Fabric):
    """One worker's end."""

    def __init__(self, rank: int, host: Concurrent) -> None:
        super().__init__(rank, host.size)
        self._host = host

    @property
    def answers_meanwhile(self) -> bool:
        return self._host.peers is not None

    def alone(self) -> AbstractContextManager[object]:
        return self._host.changed

    def serve(self, handler: Handler) -> None:
        with self._host.changed:
            self.handler = handler
            self._host.answer_early()


@dataclass
class Ticket:
    """A call of a worker here, which is its number `place`; the answer, once it is `over`. What is `sent` is kept until then."""

    place: int
    to: int
    sent: Tensor
    value: float
    over: bool = False
    buffer: Tensor | None = None


@dataclass
class Arrival:
    """A call that has come: from a process (this one where it is `None`), of a worker, to a worker, with what."""

    peer: int | None
    sender: int
    to: int
    ticket: int
    value: float
    buffer: Tensor | None = None
    lent: bool = False  # the buffer is the caller's, for the answer too
    in_turn: bool = False
    patient: bool = True


@dataclass
class Question:
    """What a worker asks process 0, for a minibatch or, without `takes`, whether there are more; `wish`: its process's for a checkpoint."""

    rank: int
    takes: bool
    queue: bool
    kept: int
    group: range
    wish: int

    def numbers(self) -> list[float]:
        return [self.rank, self.takes, self.queue, self.kept, self.group.start, self.group.stop, self.wish]

    @classmethod
    def of(cls, numbers: list[float]) -> Question:
        rank, takes, queue, kept, start, stop, wish = (int(n) for n in numbers)
        return cls(rank, bool(takes), bool(queue), kept, range(start, stop), wish)


class Concurrent(Host):
    """`survives`: the strategy does without workers that die. `names`: the processes' hosts.

    A process that is alone needs no lock: what happens, happens between its workers' turns.
    """

    def __init__(self, size: int, processes: Processes | None, survives: bool, names: list[str]) -> None:
        super().__init__(size, processes)
        self.survives, self._names = survives, names
        self.peers: Peers | None = None
        self.changed = threading.Condition(threading.RLock())
        if self.processes.size > 1:
            self.peers = Peers(self.processes, self._heed, self._lost)
            self.changed = self.peers.changed
            self.processes = self._survivors = Survivors(self.peers, SHARE, RESULT)
        self.fabrics: list[ConcurrentFabric] = [ConcurrentFabric(rank, self) for rank in self.ranks]
        self._share_living()
        self._books: Work | None = None  # on process 0, within an epoch
        self._asked: list[Question] = []  # before there are books
        self._early: list[Arrival] = []  # calls to who does not serve yet
        self._resume: dict[str, Any] | None = None
        self._running = False
        self._numbers = 0  # of tickets
        self._reset()
        if self.peers:
            self.peers.start()

    def _reset(self) -> None:
        """The beginning of an epoch, at which nothing is under way but what those have sent who have begun it earlier."""
        self._ready: deque[tuple[int, Any]] = deque()
        self._tickets: dict[int, Ticket] = {}
        self._waiting: dict[int, int] = {}  # ticket -> the worker here that waits for it
        self._questions: dict[int, Question] = {}  # asked last by each worker here
        self._paused: dict[int, Question] = {}
        self._pausing = False  # on process 0, as the next three
        self._since_pause = 0  # minibatches granted
        self._granted: Counter[int] = Counter()
        self._resting: dict[int, Question] = {}
        self._lines: dict[int, deque[Arrival]] = {}  # end here that is called in turn -> calls, the one being served first
        self._admitted: dict[int, float] = {}  # end here -> when that was let in
        self._busy = 0.0  # seconds that these ends have been

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
        ends, busy = self.total([float(len(self._admitted)), self._busy])
        load = {"server_load": busy / ends / self.elapsed()} if ends else {}
        dead = [rank for rank in range(self.size) if rank not in self.living]
        return {"staleness": {str(k): total[k] for k in sorted(total)}, **load, **({"dead": dead} if dead else {})}

    def state_dict(self) -> dict[str, Any]:
        return {"books": self._books.state_dict()} if self._running and self._books else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._resume = state.get("books")

    # Driving the workers here.

    def _run(self, work: list[Coroutine[Any, Any, Any]]) -> list[Any]:
        try:
            return self._run_epoch(work)
        except Terminated:
            raise
        except BaseException:
            if self.peers:
                self.peers.close(FAILED)
            raise

    def _run_epoch(self, work: list[Coroutine[Any, Any, Any]]) -> list[Any]:
        with self.changed:
            self._reset()
        self._work, self._results = work, [None] * len(work)
        self._going = set(range(len(work)))
        self._parked: dict[int, Request] = {}
        self._joined: dict[int, Within] = {}
        self._waits_for = ["wait"] * len(work)  # what the time until a worker's answer is counted as
        self._open_books()
        self._running = True
        self._ready.extend((place, None) for place in range(len(work)))
        while self._going:
            turn = self._next()
            if turn is None:
                if len(self._paused) < len(self._going):
                    raise RuntimeError("every worker waits for another")
                self._pause()
            else:
                self._drive(*turn)
                self._meet()
        self._running = False
        with self.changed:
            self._books = None
            for fabric in self.fabrics:
                fabric.handler = None
        return self._results

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
                self._books = Work(counts)
                if self._resume is not None:
                    self._books.load_state_dict(self._resume)
                for rank in range(self.size):
                    if rank not in self.living:
                        self._books.lose(rank)
                asked, self._asked = self._asked, []
                for question in asked:
                    self._hear(question)
        self._resume = None

    def _counted(self) -> list[int]:
        """The workers whose share was in the last exchange of all."""
        members = self._survivors.members if self.peers else [0]
        return [rank for p in members for rank in range(self.bounds[p], self.bounds[p + 1])]

    def _next(self) -> tuple[int, Any] | None:
        """A worker here that can go on, with the answer that it waits for; None where all are to pause."""
        before = time.perf_counter()
        with self.changed:
            if self.peers:
                self.peers.wait(lambda: self._ready or len(self._paused) == len(self._going))
            turn = self._ready.popleft() if self._ready else None
        if turn is not None:
            self.fabrics[turn[0]].seconds[self._waits_for[turn[0]]] += time.perf_counter() - before
        return turn

    def _drive(self, place: int, answer: Any) -> None:
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
        if isinstance(request, Take):
            self._question(place, Question(rank, True, request.queue, request.kept, request.group, self.wish()))
        elif isinstance(request, More):
            self._question(place, Question(rank, False, request.queue, request.kept, range(rank, rank + 1), self.wish()))
        elif isinstance(request, Call):
            return False, self._call(place, request)
        elif isinstance(request, Done):
            with self.changed:
                if self._tickets[request.ticket].over:
                    ticket = self._tickets.pop(request.ticket)
                    return False, (ticket.buffer, ticket.value)
                self._waiting[request.ticket] = place
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
        if not self.peers:
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
        if first.sums or not self.peers:
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
            self._survivors.deliver(peer, numbers, buffer)
        elif kind == CALL:
            sender, to, ticket, value, *lent = int(numbers[0]), int(numbers[1]), int(numbers[2]), *numbers[3:]
            if lent:
                assert self.peers is not None
                buffer = self.peers.borrowed(peer, lent)
            line = self._lines.get(to)
            if line and (line[0].peer, line[0].ticket) == (peer, ticket):
                line[0].buffer, line[0].lent = buffer, bool(lent)
                self._finish(line[0])
            else:
                self._arrive(Arrival(peer, sender, to, ticket, value, buffer, bool(lent)))
        elif kind == ANSWER:
            number = int(numbers[0])
            if numbers[2] and number in self._tickets:
                buffer = self._tickets[number].sent
            self._come(number, buffer, numbers[1])
        elif kind == KNOCK:
            sender, to, ticket, patient = (int(numbers[i]) for i in (0, 1, 2, 4))
            self._arrive(Arrival(peer, sender, to, ticket, numbers[3], in_turn=True, patient=bool(patient)))
        elif kind == GRANT:
            self._send_call(peer, int(numbers[0]))
        elif kind == ASK:
            self._hear(Question.of(numbers))
        elif kind == TOLD:
            rank, told, split, number, fraction = numbers
            self._be_told(int(rank), int(told), (int(split), int(number)), fraction)

    # Calls.

    def _call(self, place: int, request: Call) -> int:
        with self.changed:
            self._numbers += 1
            number, sender = self._numbers, self.ranks[place]
            ticket = self._tickets[number] = Ticket(place, request.to, request.buffer.detach(), request.value)
            if request.to not in self.living:
                ticket.over, ticket.value = True, 0.0
            elif request.to in self.ranks:
                self._arrive(Arrival(None, sender, request.to, number, request.value, ticket.sent.clone(), in_turn=request.in_turn,
                                     patient=request.patient))
            else:
                assert self.peers is not None
                to = self._hosting(request.to)
                if request.in_turn:
                    self.peers.send(to, KNOCK, [sender, request.to, number, request.value, request.patient])
                else:
                    self._send_call(to, number)
            return number

    def _send_call(self, to: int, number: int) -> None:
        """The call itself, with its buffer, to a process."""
        assert self.peers is not None
        ticket = self._tickets[number]
        numbers = [self.ranks[ticket.place], ticket.to, number, ticket.value]
        lent = self.peers.lend(to, ticket.sent)
        if lent is None:
            self.peers.send(to, CALL, numbers, ticket.sent.cpu())
        else:
            where, slot = lent
            slot.copy_(ticket.sent)
            ticket.sent = slot
            self.peers.send(to, CALL, [*numbers, *where])

    def _hosting(self, rank: int) -> int:
        return next(p for p in range(len(self.bounds) - 1) if rank < self.bounds[p + 1])

    def _fabric(self, rank: int) -> ConcurrentFabric:
        return self.fabrics[rank - self.ranks.start]

    def _arrive(self, arrival: Arrival) -> None:
        """A call, or a knock, has come."""
        handler = self._fabric(arrival.to).handler
        if handler is None:
            self._early.append(arrival)
        elif not arrival.in_turn:
            self._reply(arrival, *handler(arrival.sender, self._on_device(arrival.buffer), arrival.value))
        else:
            line = self._lines.setdefault(arrival.to, deque())
            self._admitted.setdefault(arrival.to, 0.0)
            if line and not arrival.patient:
                self._reply(arrival, *handler(arrival.sender, None, arrival.value))
                return
            line.append(arrival)
            if len(line) == 1:
                self._let_in(arrival.to)

    def answer_early(self) -> None:
        """A worker here has begun to serve."""
        early, self._early = self._early, []
        for arrival in early:
            self._arrive(arrival)

    def _let_in(self, end: int) -> None:
        """The first of a line is served."""
        arrival = self._lines[end][0]
        self._admitted[end] = time.perf_counter()
        if arrival.peer is None:
            self._finish(arrival)
        else:
            assert self.peers is not None
            self.peers.send(arrival.peer, GRANT, [arrival.ticket])

    def _finish(self, arrival: Arrival) -> None:
        """All of a call in turn has come."""
        handler = self._fabric(arrival.to).handler
        assert handler is not None
        buffer, value = handler(arrival.sender, self._on_device(arrival.buffer), arrival.value)
        self._reply(arrival, buffer, value, lambda: self._leave_if_first(arrival))
        if arrival.peer is None:
            self._leave(arrival.to)

    def _leave_if_first(self, arrival: Arrival) -> None:
        line = self._lines.get(arrival.to)
        if line and line[0] is arrival:
            self._leave(arrival.to)

    def _leave(self, end: int) -> None:
        """The first of a line has its answer."""
        self._lines[end].popleft()
        self._busy += time.perf_counter() - self._admitted[end]
        if self._lines[end]:
            self._let_in(end)

    def _reply(self, arrival: Arrival, buffer: Tensor | None, value: float, sent: Callable[[], None] | None = None) -> None:
        """The answer; what belongs to the worker is copied, as it may change before it is sent."""
        own = arrival.buffer
        if buffer is not None and buffer is not own:
            if own is not None and len(own) == len(buffer):
                buffer = own.copy_(buffer)
            else:
                buffer = buffer.cpu() if buffer.is_cuda else buffer.clone()
        if arrival.peer is None:
            self._come(arrival.ticket, buffer, value)
        else:
            assert self.peers is not None
            in_place = arrival.lent and buffer is own
            self.peers.send(arrival.peer, ANSWER, [arrival.ticket, value, in_place], None if in_place else buffer, sent)

    def _on_device(self, buffer: Tensor | None) -> Tensor | None:
        """What has arrived, where the workers here are."""
        return buffer.to(self.workers[0].params.device) if buffer is not None and self.workers else buffer

    def _come(self, number: int, buffer: Tensor | None, value: float) -> None:
        """The answer to a call of a worker here."""
        ticket = self._tickets.get(number)
        if ticket is None or ticket.over:
            return
        buffer = self._on_device(buffer)
        ticket.over, ticket.buffer, ticket.value = True, buffer, value
        if number in self._waiting:
            del self._tickets[number]
            self._ready.append((self._waiting.pop(number), (buffer, value)))

    # Minibatches.

    def _question(self, place: int, question: Question) -> None:
        """Ask process 0."""
        with self.changed:
            self._questions[place] = question
            if self.between.rank == 0:
                self._hear(question)
            else:
                assert self.peers is not None
                self.peers.send(0, ASK, question.numbers())

    def _hear(self, question: Question) -> None:
        """A question has come to process 0."""
        books, rank = self._books, question.rank
        if rank not in self.living:
            return
        if books is None:
            self._asked.append(question)
            return
        books.settle(rank, question.kept)
        self._wake()
        if question.wish and self._since_pause and not books.over:
            self._pausing = True
            for other in sorted(self._resting):
                self._tell(other, PAUSE)
            self._resting = {}
        owed = question.takes and any(self._granted[other] > self._granted[rank] for other in question.group)
        if self._pausing and not owed:
            self._tell(rank, PAUSE)
        elif question.takes:
            self._granted[rank] += 1
            found = books.take(rank, question.queue, question.kept)
            if found is None:
                self._tell(rank, NOTHING_NOW)
            else:
                self._since_pause += 1
                self._tell(rank, TAKEN, *found)
        else:
            self._resting[rank] = question
            self._wake()

    def _wake(self) -> None:
        """Let go on who rests, where that has an end."""
        books = self._books
        if books is None or self._pausing:
            return
        for rank in sorted(self._resting):
            more = books.more(rank, self._resting[rank].queue)
            if more or books.over:
                del self._resting[rank]
                self._tell(rank, GO_ON if more else OVER)

    def _tell(self, rank: int, told: int, place: Place = (0, 0), fraction: float = 0.0) -> None:
        """Answer a worker's question."""
        if rank in self.ranks:
            self._be_told(rank, told, place, fraction)
        else:
            assert self.peers is not None
            self.peers.send(self._hosting(rank), TOLD, [rank, told, *place, fraction])

    def _be_told(self, rank: int, told: int, minibatch: Place, fraction: float) -> None:
        """What process 0 has answered to a worker here."""
        place = rank - self.ranks.start
        if told == PAUSE:
            self._paused[place] = self._questions[place]
            return
        if told == TAKEN:
            self._sources.point(self.workers[place], minibatch)
        self._ready.append((place, {TAKEN: fraction, NOTHING_NOW: None, GO_ON: True, OVER: False}[told]))

    def _pause(self) -> None:
        """All workers of the job are at rest, or will be. On the main thread."""
        wish = int(self._control([float(self.wish())], largest=True)[0])
        with self.changed:
            self._pausing, self._since_pause = False, 0
        if wish:
            self.on_safe_point(wish)
        self.processes.barrier()
        with self.changed:
            paused, self._paused = self._paused, {}
            for place, question in paused.items():
                question.wish = self.wish()
                self._question(place, question)

    # Deaths.

    def _lost(self, peer: int) -> None:
        """A process has ended."""
        ranks, where = range(self.bounds[peer], self.bounds[peer + 1]), f"process {peer} on {self._names[peer]}"
        if peer == 0 or not self.survives or not set(self.essential).isdisjoint(ranks):
            raise RuntimeError(f"Connection closed by peer: {where} has died")
        for rank in ranks:
            self.living.remove(rank)
        self._early = [arrival for arrival in self._early if arrival.peer != peer]
        for end, line in self._lines.items():
            served = line[0] if line else None
            self._lines[end] = left = deque(arrival for arrival in line if arrival.peer != peer)
            if served is not None and served.peer == peer:
                self._busy += time.perf_counter() - self._admitted[end]
                if left:
                    self._let_in(end)
        for number in [number for number, ticket in self._tickets.items() if ticket.to in ranks]:
            self._come(number, None, 0.0)
        if self.between.rank == 0:
            again = 0
            for rank in ranks:
                self._resting.pop(rank, None)
                again += self._books.lose(rank) if self._books else 0
            workers = f"worker {ranks.start}" if len(ranks) == 1 else f"workers {ranks.start} to {ranks.stop - 1}"
            self.say(f"{where} has died, and with it {workers}; {len(self.living)} go on, and do {again} minibatches again")
            self._wake()

    def close(self) -> None:
        if not self.peers:
            super().close()
            return
        self.processes.barrier()
        self.peers.close()
        if not self.survives:  # else someone may be missing, and wait for whom?
            self.between.close()
