"""Who trains on what, over the processes of a job: process 0 keeps the books of an epoch's minibatches
(`parallel/fabric/minibatch_queue.py`); workers ask it for the next one, or whether there will be more.

A worker of another process asks ahead: when it has been given a minibatch, its process asks for the next one meanwhile, so that it need not
wait for an answer that takes two messages. It is refused one ahead where few are left, for others to take, or where the job is to pause;
then it asks in earnest when it needs one. What it was given ahead counts as taken.

Checkpoints. Where a process wants one, process 0 answers with a pause whoever asks for a minibatch next; all of a group, or none. A worker
that asks has nothing under way. When all have been answered so, the job is at rest, and they ask again after it.

Everything here runs with the host's lock, on the main thread or on one that reads.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pykaldist.parallel.engines.asynchronous_host import AsynchronousHost
from pykaldist.parallel.fabric.minibatch_queue import Place, Work
from pykaldist.parallel.transport.transport import ASK, TOLD

TAKEN, NOTHING_NOW, GO_ON, OVER, PAUSE = range(5)  # what process 0 tells a worker that asks


@dataclass
class Question:
    """What a worker asks process 0, for a minibatch or, without `takes`, whether there are more; `wish`: its process's for a checkpoint;
    `ahead`: it has one under way."""

    rank: int
    takes: bool
    queue: bool
    kept: int
    group: range
    wish: int
    ahead: bool = False

    def numbers(self) -> list[float]:
        return [self.rank, self.takes, self.queue, self.kept, self.group.start, self.group.stop, self.wish, self.ahead]

    @classmethod
    def of(cls, numbers: list[float]) -> Question:
        rank, takes, queue, kept, start, stop, wish, ahead = (int(n) for n in numbers)
        return cls(rank, bool(takes), bool(queue), kept, range(start, stop), wish, bool(ahead))


@dataclass
class Ahead:
    """A question asked ahead: its answer, once that has come, and whether the worker waits for it by now."""

    answer: tuple[int, Place, float] | None = None
    awaited: bool = False


class Questions:
    """Of the workers here; and on process 0, of all.

    `on_answer(place, answer)` is called with what the worker number `place` here has asked for, after `point(place, minibatch)` where it is
    a minibatch. `paused`: the workers here that are at rest. `books`: on process 0, within an epoch.
    """

    def __init__(self, host: AsynchronousHost, on_answer: Callable[[int, Any], None], point: Callable[[int, Place], None]) -> None:
        self._host, self._on_answer, self._point = host, on_answer, point
        self.books: Work | None = None
        self._asked: list[Question] = []  # before there are books
        self.reset()

    def reset(self) -> None:
        """The beginning of an epoch."""
        self._last: dict[int, Question] = {}  # of each worker here
        self.paused: dict[int, Question] = {}
        self._ahead: dict[int, Ahead] = {}  # of workers here
        self._pausing = False  # on process 0, as the next three
        self._since_pause = 0  # minibatches granted
        self._granted: Counter[int] = Counter()
        self._resting: dict[int, Question] = {}

    def open(self, books: Work) -> None:
        """On process 0: answer from now on, also who has asked earlier."""
        self.books = books
        asked, self._asked = self._asked, []
        for question in asked:
            self._hear(question)

    def ask(self, place: int, question: Question) -> None:
        """A worker here asks process 0."""
        self._last[place] = question
        if self._host.between.rank == 0:
            self._hear(question)
        elif question.takes and place in self._ahead:
            self._ahead[place].awaited = True
            self._use(place)
        else:
            self._send(question)

    def _send(self, question: Question) -> None:
        assert self._host.transport is not None
        self._host.transport.send(0, ASK, question.numbers())

    def _ask_ahead(self, place: int) -> None:
        """The worker has been given the minibatch that it asked for last."""
        last = self._last[place]
        if len(last.group) == 1 and self._host.between.rank:
            self._ahead[place] = Ahead()
            self._send(dataclasses.replace(last, kept=last.kept + 1, wish=self._host.wish(), ahead=True))

    def _use(self, place: int) -> None:
        """The worker waits for what was asked ahead."""
        answer = self._ahead[place].answer
        if answer is None:
            return
        del self._ahead[place]
        if answer[0] == TAKEN:
            self._give(place, *answer)
        else:
            self._send(self._last[place])

    def heed(self, kind: int, numbers: list[float]) -> None:
        """A message of another process."""
        if kind == ASK:
            self._hear(Question.of(numbers))
        elif kind == TOLD:
            rank, told, split, number, fraction = numbers
            self._be_told(int(rank), int(told), (int(split), int(number)), fraction)

    def rested(self) -> None:
        """The job has been at rest."""
        self._pausing, self._since_pause = False, 0

    def go_on(self) -> None:
        """The workers here ask again."""
        paused, self.paused = self.paused, {}
        for place, question in paused.items():
            question.wish = self._host.wish()
            self.ask(place, question)

    def lose(self, ranks: range) -> int:
        """On process 0: workers have died. The minibatches that others do again."""
        again = 0
        for rank in ranks:
            self._resting.pop(rank, None)
            again += self.books.lose(rank) if self.books else 0
        self._wake()
        return again

    def _hear(self, question: Question) -> None:
        """A question has come to process 0."""
        books, rank = self.books, question.rank
        if rank not in self._host.living:
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
        elif question.ahead and not books.plenty:
            self._tell(rank, NOTHING_NOW)
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
        books = self.books
        if books is None or self._pausing:
            return
        for rank in sorted(self._resting):
            more = books.more(rank, self._resting[rank].queue)
            if more or books.over:
                del self._resting[rank]
                self._tell(rank, GO_ON if more else OVER)

    def _tell(self, rank: int, told: int, place: Place = (0, 0), fraction: float = 0.0) -> None:
        """Answer a worker's question."""
        if rank in self._host.ranks:
            self._be_told(rank, told, place, fraction)
        else:
            assert self._host.transport is not None
            self._host.transport.send(self._host.hosting(rank), TOLD, [rank, told, *place, fraction])

    def _be_told(self, rank: int, told: int, minibatch: Place, fraction: float) -> None:
        """What process 0 has answered to a worker here."""
        place = rank - self._host.ranks.start
        ahead = self._ahead.get(place)
        if ahead is not None and ahead.answer is None:
            ahead.answer = told, minibatch, fraction
            if ahead.awaited:
                self._use(place)
        elif told == PAUSE:
            self.paused[place] = self._last[place]
        else:
            self._give(place, told, minibatch, fraction)

    def _give(self, place: int, told: int, minibatch: Place, fraction: float) -> None:
        """A worker here has its answer."""
        if told == TAKEN:
            self._point(place, minibatch)
        self._on_answer(place, {TAKEN: fraction, NOTHING_NOW: None, GO_ON: True, OVER: False}[told])
        if told == TAKEN:
            self._ask_ahead(place)
