"""Work requests: workers ask process 0 for minibatches, over the processes of a job.

Process 0 has the minibatch queue of the epoch (`parallel/fabric/minibatch_queue.py`). A worker asks it for its next minibatch, or whether
there will be more.

Prefetch. When a worker of another process has been given a minibatch, its process asks for the next one at once, while the worker computes.
So the worker need not wait for an answer that takes two messages. Process 0 refuses a prefetch where few minibatches are left, so that
other workers can take them, and where the job is to pause. The worker then asks again when it needs a minibatch. A prefetched minibatch
counts as taken.

Checkpoints. Where a process wants one, process 0 answers PAUSE to every worker that asks for a minibatch: to all workers of a group, or to
none. A worker that asks has nothing under way. When all workers have been answered so, the job is at rest. After that they ask again.

All of this runs with the host's lock held, on the main thread or on the thread that reads messages.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pykaldist.parallel.engines.asynchronous_host import AsynchronousHost
from pykaldist.parallel.fabric.minibatch_queue import MinibatchId, MinibatchQueue
from pykaldist.parallel.transport.transport import WORK_ANSWER, WORK_REQUEST

MINIBATCH, NONE_NOW, GO_ON, OVER, PAUSE = range(5)  # answers of process 0


@dataclass
class WorkRequest:
    """A request of worker `rank` to process 0: for a minibatch (`takes`), or whether there will be more.

    `queue`, `unsettled` and `group` are those of `Fabric.take`. `wish` is what the worker's process wants (`Host.wish`). `prefetch`: the
    worker still has a minibatch to train on.
    """

    rank: int
    takes: bool
    queue: bool
    unsettled: int
    group: range
    wish: int
    prefetch: bool = False

    def numbers(self) -> list[float]:
        """The request as numbers, for a message."""
        return [self.rank, self.takes, self.queue, self.unsettled, self.group.start, self.group.stop, self.wish, self.prefetch]

    @classmethod
    def of(cls, numbers: list[float]) -> WorkRequest:
        """The request that a message's numbers hold."""
        rank, takes, queue, unsettled, start, stop, wish, prefetch = (int(n) for n in numbers)
        return cls(rank, bool(takes), bool(queue), unsettled, range(start, stop), wish, bool(prefetch))


@dataclass
class Prefetch:
    """A request for a minibatch in advance: its answer, when that has come, and whether the worker waits for it already."""

    answer: tuple[int, MinibatchId, float] | None = None
    awaited: bool = False


class WorkRequests:
    """The work requests of the workers of this process, and, on process 0, those of all workers.

    `on_answer(index, answer)` is called with the answer to worker number `index` of this process; before it `assign(index, minibatch)`,
    where the answer is a minibatch. `paused` holds the requests of the workers here that are at rest. `minibatches` is the queue of the
    epoch, on process 0.
    """

    def __init__(self, host: AsynchronousHost, on_answer: Callable[[int, Any], None], assign: Callable[[int, MinibatchId], None]) -> None:
        self._host, self._on_answer, self._assign = host, on_answer, assign
        self.minibatches: MinibatchQueue | None = None
        self._early: list[WorkRequest] = []  # requests that came before the epoch's queue was there
        self.reset()

    def reset(self) -> None:
        """Forget all requests, at the beginning of an epoch."""
        self._last: dict[int, WorkRequest] = {}  # the last request of each worker here
        self.paused: dict[int, WorkRequest] = {}
        self._prefetched: dict[int, Prefetch] = {}  # of each worker here that has a prefetch under way
        self._pausing = False  # this and the next three are used on process 0
        self._since_pause = 0  # minibatches given since the last rest
        self._granted: Counter[int] = Counter()  # minibatches, or that there are none, by worker
        self._called: Counter[int] = Counter()  # to go on, out of rest
        self._resting: dict[int, WorkRequest] = {}

    def open(self, minibatches: MinibatchQueue) -> None:
        """On process 0: answer requests from now on, first those that came early."""
        self.minibatches = minibatches
        asked, self._early = self._early, []
        for request in asked:
            self._handle_request(request)

    def ask(self, index: int, request: WorkRequest) -> None:
        """Send a request of worker number `index` of this process to process 0."""
        self._last[index] = request
        if self._host.job_processes.rank == 0:
            self._handle_request(request)
        elif request.takes and index in self._prefetched:
            self._prefetched[index].awaited = True
            self._use_prefetched(index)
        else:
            self._send(request)

    def _send(self, request: WorkRequest) -> None:
        assert self._host.transport is not None
        self._host.transport.send(0, WORK_REQUEST, request.numbers())

    def _prefetch(self, index: int) -> None:
        """Ask for the next minibatch of a worker that has just been given one."""
        last = self._last[index]
        if len(last.group) == 1 and self._host.job_processes.rank:
            self._prefetched[index] = Prefetch()
            self._send(dataclasses.replace(last, unsettled=last.unsettled + 1, wish=self._host.wish(), prefetch=True))

    def _use_prefetched(self, index: int) -> None:
        """Give the worker its prefetched minibatch, if that has come; ask again where it was refused."""
        answer = self._prefetched[index].answer
        if answer is None:
            return
        del self._prefetched[index]
        if answer[0] == MINIBATCH:
            self._give(index, *answer)
        else:
            self._send(self._last[index])

    def handle_message(self, kind: int, numbers: list[float]) -> None:
        """Handle a message of another process."""
        if kind == WORK_REQUEST:
            self._handle_request(WorkRequest.of(numbers))
        elif kind == WORK_ANSWER:
            rank, answer, split, number, fraction = numbers
            self._handle_answer(int(rank), int(answer), (int(split), int(number)), fraction)

    def rested(self) -> None:
        """Note that the job has been at rest."""
        self._pausing, self._since_pause = False, 0

    def go_on(self) -> None:
        """Let the workers of this process ask again, after a rest."""
        paused, self.paused = self.paused, {}
        for index, request in paused.items():
            request.wish = self._host.wish()
            self.ask(index, request)

    def remove_dead(self, ranks: range) -> int:
        """On process 0: note that workers have died. Returns how many minibatches have to be done again."""
        again = 0
        for rank in ranks:
            self._resting.pop(rank, None)
            again += self.minibatches.remove_dead(rank) if self.minibatches else 0
        self._wake()
        return again

    def _handle_request(self, request: WorkRequest) -> None:
        """On process 0: answer a request, or keep it until it can be answered."""
        minibatches, rank = self.minibatches, request.rank
        if rank not in self._host.living:
            return
        if minibatches is None:
            self._early.append(request)
            return
        minibatches.settle(rank, request.unsettled)
        self._wake()
        if request.wish and self._since_pause and not minibatches.over:
            self._pausing = True
            for other, resting in sorted(self._resting.items()):
                self._send_answer(other, GO_ON if self._owed(resting) else PAUSE)
            self._resting = {}
        owed = self._owed(request)
        if self._pausing and not owed:
            self._send_answer(rank, PAUSE)
        elif self._pausing and not request.takes:
            self._send_answer(rank, GO_ON)
        elif request.prefetch and not minibatches.plenty:
            self._send_answer(rank, NONE_NOW)
        elif request.takes:
            self._granted[rank] += 1
            found = minibatches.take(rank, request.queue, request.unsettled)
            if found is None:
                self._send_answer(rank, NONE_NOW)
            else:
                self._since_pause += 1
                self._send_answer(rank, MINIBATCH, *found)
        else:
            self._resting[rank] = request
            self._wake()

    def _owed(self, request: WorkRequest) -> bool:
        """Whether another one of the group has had such an answer before this worker, and may wait for it."""
        given = self._granted if request.takes else self._called
        return any(given[other] > given[request.rank] for other in request.group)

    def _wake(self) -> None:
        """Answer the resting workers for which there is another minibatch, or all where the epoch is over."""
        minibatches = self.minibatches
        if minibatches is None or self._pausing:
            return
        for rank in sorted(self._resting):
            more = minibatches.more(rank, self._resting[rank].queue)
            if more or minibatches.over:
                del self._resting[rank]
                self._send_answer(rank, GO_ON if more else OVER)

    def _send_answer(self, rank: int, answer: int, minibatch: MinibatchId = (0, 0), fraction: float = 0.0) -> None:
        """Answer a worker's request, on process 0."""
        self._called[rank] += answer == GO_ON
        if rank in self._host.ranks:
            self._handle_answer(rank, answer, minibatch, fraction)
        else:
            assert self._host.transport is not None
            self._host.transport.send(self._host.hosting(rank), WORK_ANSWER, [rank, answer, *minibatch, fraction])

    def _handle_answer(self, rank: int, answer: int, minibatch: MinibatchId, fraction: float) -> None:
        """Handle an answer of process 0 to a worker of this process."""
        index = rank - self._host.ranks.start
        prefetch = self._prefetched.get(index)
        if prefetch is not None and prefetch.answer is None:
            prefetch.answer = answer, minibatch, fraction
            if prefetch.awaited:
                self._use_prefetched(index)
        elif answer == PAUSE:
            self.paused[index] = self._last[index]
        else:
            self._give(index, answer, minibatch, fraction)

    def _give(self, index: int, answer: int, minibatch: MinibatchId, fraction: float) -> None:
        """Pass an answer on to a worker of this process."""
        if answer == MINIBATCH:
            self._assign(index, minibatch)
        self._on_answer(index, {MINIBATCH: fraction, NONE_NOW: None, GO_ON: True, OVER: False}[answer])
        if answer == MINIBATCH:
            self._prefetch(index)
