"""The fabric: how bytes move between the workers of a job, as a strategy sees it.

    async def epoch(self, worker, fabric):            # one coroutine for each worker
        await fabric.compute(worker.step)
        await fabric.average(worker.params, weight)   # returns when every worker has come to its own average

`Fabric` is one worker's end. Its operations are requests that a coroutine awaits; the `Host` (`parallel/engines/host.py`) of the process
drives the coroutines of its workers, and meets requests when all of them have made theirs, with the help of the other processes. So the
same strategy runs with a process for each worker, with many workers in one process, or with anything between.

Synchronous strategies make the same requests on every worker. Asynchronous ones go each their own way: they `take` minibatches, `serve` and
`call` each other, and `mark` where they could be started anew. It takes another host to serve these: `Concurrent`
(`parallel/engines/concurrent.py`) between processes, or a `Simulation` (`parallel/engines/simulation.py`).
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


class Request:
    """What a coroutine waits for."""

    def __await__(self) -> Generator[Request, Any, Any]:
        return (yield self)


@dataclass
class Average(Request):
    buffer: Tensor
    weight: float
    measure: bool


@dataclass
class Mean(Request):
    buffer: Tensor
    weight: float


@dataclass
class Begin(Request):
    exchange: Coroutine[Any, Any, Any]


@dataclass
class Finish(Request):
    ticket: int


@dataclass
class Sum(Request):
    buffer: Tensor
    value: float


@dataclass
class Total(Request):
    value: float


@dataclass
class Maximum(Request):
    value: float


@dataclass
class Exchange(Request):
    buffer: Tensor
    to: int
    source: int


@dataclass
class Gather(Request):
    buffer: Tensor


@dataclass
class Scatter(Request):
    parts: list[Tensor]


@dataclass
class SafePoint(Request):
    pass


@dataclass
class Compute(Request):
    """Training, or, where `what` names it, a strategy's own work, which moves `moved` bytes."""

    work: Callable[[], Any]
    what: str = ""
    moved: float = 0.0


@dataclass
class Take(Request):
    queue: bool
    kept: int
    group: range


@dataclass
class More(Request):
    queue: bool
    kept: int


@dataclass
class Call(Request):
    to: int
    buffer: Tensor
    value: float
    in_turn: bool
    patient: bool


@dataclass
class Within(Request):
    buffer: Tensor
    value: float
    members: range
    sums: bool


@dataclass
class Done(Request):
    ticket: int


# What a worker answers to a call: its rank, what it was sent (None: a call that is turned away) -> (a buffer or None, a number). It may
# write its answer over what it was sent, if that is not lent. The buffer, if it is not lent, is read before anything else happens to the
# worker.
Handler = Callable[[int, Tensor | None, float], tuple[Tensor | None, float]]


class Fabric:
    """Worker `rank` of `size`; `seconds` adds up where its time went in this epoch."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.seconds = {"compute": 0.0, "exchange": 0.0, "wait": 0.0}
        self.staleness: Counter[int] = Counter()  # how late the epoch's updates were -> how many
        self.node_size = size  # workers of a node, which follow each other; 0 where nodes have different numbers
        self.living = list(range(size))  # the workers that have not died, as far as is known here
        self.handler: Handler | None = None

    async def compute(self, work: Callable[[], T]) -> T:
        """Do `work` and account for its time."""
        before = time.perf_counter()
        result = work()
        self.seconds["compute"] += time.perf_counter() - before
        return result

    async def work(self, what: str, work: Callable[[], T], over: Tensor, passes: float) -> T:
        """Do `work`, which belongs to an exchange, such as a filter; `what` names it, with its article.

        It takes about as long as `passes` passes over a buffer of the size of `over`, where reading it is one and writing it another. From
        this a prediction has its seconds, with the memory bandwidth of the device.
        """
        before = time.perf_counter()
        result = work()
        self.seconds["exchange"] += time.perf_counter() - before
        return result

    async def average(self, buffer: Tensor, weight: float, measure: bool = False) -> None:
        """buffer <- sum_k weight_k buffer_k / sum_k weight_k over all workers; left as it is where all weights are 0.

        With `measure`, the host also notes how far the workers' buffers were from their mean.
        """
        await Average(buffer, weight, measure)

    async def mean(self, buffer: Tensor, weight: float) -> Tensor:
        """The average that `average` makes, in a new buffer that the workers of a process share; `buffer` stays as it is."""
        return await Mean(buffer, weight)

    async def begin(self, exchange: Coroutine[Any, Any, Any]) -> int:
        """Begin an exchange, such as `fabric.mean(buffer, weight)`, while this worker goes on; the ticket for `finish`.

        `exchange` is a coroutine that makes requests of the kind that all workers make together, such as `mean` or `gather`. What it
        sends must not be changed before `finish`. Any number can be under way: they are carried out one after the other, in the order in
        which they were begun. A checkpoint does not hold them: a strategy that is resumed first begins those anew, in their order, that
        were under way.
        """
        return await Begin(exchange)

    async def finish(self, ticket: int) -> Any:
        """Wait for the end of an exchange that was begun: what it returns."""
        return await Finish(ticket)

    async def sum(self, buffer: Tensor, value: float = 0.0) -> float:
        """buffer <- sum_k buffer_k over all workers; the sum of their values."""
        return await Sum(buffer, value)

    async def total(self, value: float) -> float:
        """The sum of the workers' values."""
        return await Total(value)

    async def maximum(self, value: float) -> float:
        """The largest of the workers' values."""
        return await Maximum(value)

    async def exchange(self, buffer: Tensor, to: int, source: int) -> Tensor:
        """Send `buffer` to worker `to`, while worker `source` sends one here: that one. Every worker sends to one and hears from one."""
        return await Exchange(buffer, to, source)

    async def gather(self, buffer: Tensor) -> list[Tensor]:
        """Every worker's buffer, by rank; they may differ in length. None of them may be changed by anyone from then on."""
        return await Gather(buffer)

    async def scatter(self, parts: list[Tensor]) -> list[Tensor]:
        """Part k goes to worker k: what each worker sent here, by rank. None of it may be changed by anyone from then on."""
        return await Scatter(parts)

    async def safe_point(self) -> None:
        """To be called by every worker equally often, where a checkpoint can be taken: a model exchanged, nothing half done."""
        await SafePoint()

    def mark(self) -> None:
        """An asynchronous strategy's coroutine could be started anew from here.

        Taken up from a checkpoint, it is given once more the answers that it has had since it came here last. So between two marks all that
        it changes, it changes after its last request, or in the work of a `compute`, which is not done again.
        """

    async def take(self, queue: bool, kept: int = 0, group: range | None = None) -> float | None:
        """The worker's next minibatch becomes the next one of its own part of the data, or, once that is used up, one of another's (in a
        `queue`, else only of one that died); None: there is none for it now.

        The part of the epoch's minibatches, or of its own part's, that was taken before. The worker has handed on to the others what it has
        learnt of all but the last `kept` of the minibatches that it took before. Those of a `group` take in step.
        """
        return await Take(queue, kept, range(self.rank, self.rank + 1) if group is None else group)

    async def more(self, queue: bool, kept: int = 0) -> bool:
        """To be called when `take` has given none: True where it would give one now, since a worker has died; False when the epoch's
        minibatches are all done."""
        return await More(queue, kept)

    @property
    def answers_meanwhile(self) -> bool:
        """Calls are answered here while this worker computes, so that they must not touch what it computes with."""
        return False

    def alone(self) -> AbstractContextManager[object]:
        """While this is entered, no call is answered here; nothing may be awaited."""
        return contextlib.nullcontext()

    async def sum_within(self, buffer: Tensor, value: float, members: range) -> float:
        """buffer <- the sum of the buffers of a group of workers, of which this is one; the sum of their values."""
        return await Within(buffer, value, members, True)

    async def hand_down(self, buffer: Tensor, members: range) -> None:
        """buffer <- that of the first worker of a group."""
        await Within(buffer, 0.0, members, False)

    def lend(self, like: Tensor) -> Tensor:
        """A new buffer, such as `like`, which calls bring and answer as it is, without a copy, where memory is shared.

        Whoever lends it fills it before, and nobody writes to it afterwards. Its memory is lent again when nobody anywhere refers to it.
        """
        return torch.empty_like(like)

    def attending(self) -> AbstractContextManager[object]:
        """Entered while this worker computes and comes to `look` from time to time: then others need not wake it."""
        return contextlib.nullcontext()

    def look(self) -> None:
        """Deal with what has arrived meanwhile."""

    def come(self, ticket: int) -> tuple[Tensor | None, float] | None:
        """What `done` will have of a call, if it is known to have come already; to be asked `alone`."""
        return None

    def serve(self, handler: Handler) -> None:
        """Answer others' calls by `handler(sender, buffer, value)` whenever one arrives, whatever this worker does, one at a time."""
        self.handler = handler

    async def call(self, to: int, buffer: Tensor, value: float) -> int:
        """Send a buffer and a number to worker `to`, and go on at once; the ticket by which `done` has the answer.

        The buffer is the caller's again when this returns, if it is not lent.
        """
        return await Call(to, buffer, value, False, True)

    async def call_in_turn(self, to: int, buffer: Tensor, value: float, patient: bool = True) -> int:
        """`call` to an end that is busy with a call of this kind from its first byte to the last one of the answer, until which the buffer
        must stay as it is.

        Where it is busy, a patient call waits its turn; an impatient one is turned away: `handler(sender, None, value)` says what it is
        told.
        """
        return await Call(to, buffer, value, True, patient)

    async def done(self, ticket: int) -> tuple[Tensor | None, float]:
        """Wait for the answer to a call; nobody may change it. (None, 0) where the other end has died."""
        return await Done(ticket)


def num_bytes(buffer: Tensor) -> int:
    """As it is sent: models in single precision."""
    return 4 * buffer.numel() if buffer.dtype == torch.float64 else buffer.numel() * buffer.itemsize
