"""The fabric: the operations by which a strategy exchanges data between the workers of a job.

    async def epoch(self, worker, fabric):            # one coroutine for each worker
        await fabric.compute(worker.step)
        await fabric.average(worker.params, weight)   # returns when every worker has called its own average

A `Fabric` object belongs to one worker. Its operations are requests that the worker's coroutine awaits. The `Host`
(`parallel/engines/host.py`) of a process runs the coroutines of the workers of this process. When all of them have made a request, it
carries out these requests, together with the other processes. So the same strategy runs with one process for each worker, with many workers
in one process, or with anything between.

Synchronous strategies make the same requests on every worker, in the same order. Asynchronous workers are independent of each other: they
`take` minibatches, `serve` and `call` each other, and `mark` the points from which they can be restarted. Two hosts serve them:
`ConcurrentHost` (`parallel/engines/concurrent.py`) between processes, and `Simulation` (`parallel/engines/simulation.py`) in simulated
time.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from pykaldist.parallel.fabric.clock import Clock

T = TypeVar("T")


class Request:
    """One request of a coroutine. The coroutine waits until the host answers it."""

    __slots__ = ()

    def __await__(self) -> Generator[Request, Any, Any]:
        return (yield self)


@dataclass(slots=True)
class Average(Request):
    """Replace the buffer by the weighted mean over all workers (`Fabric.average`)."""

    buffer: Tensor
    weight: float
    measure: bool
    since: Tensor | None = None


@dataclass(slots=True)
class Mean(Request):
    """Make the weighted mean over all workers in a new buffer (`Fabric.mean`)."""

    buffer: Tensor
    weight: float


@dataclass(slots=True)
class Begin(Request):
    """Begin an exchange in the background (`Fabric.begin`)."""

    exchange: Coroutine[Any, Any, Any]


@dataclass(slots=True)
class ComputeParts(Request):
    """Compute a buffer part by part, and begin to exchange each part when it is made (`Fabric.compute_parts`)."""

    work: Callable[..., Any]
    slices: Sequence[slice]
    exchange: Callable[[int], Coroutine[Any, Any, Any]]


@dataclass(slots=True)
class BeginParts(Request):
    """Begin to exchange each part of a buffer as at the time when it was made, where time is simulated."""

    slices: Sequence[slice]
    exchange: Callable[[int], Coroutine[Any, Any, Any]]


@dataclass(slots=True)
class Finish(Request):
    """Wait for the end of an exchange in the background (`Fabric.finish`)."""

    ticket: int


@dataclass(slots=True)
class Sum(Request):
    """Sum buffers and, but for None, values over all workers (`Fabric.sum`)."""

    buffer: Tensor
    value: float | None


@dataclass(slots=True)
class Total(Request):
    """Sum values over all workers (`Fabric.total`)."""

    value: float


@dataclass(slots=True)
class Maximum(Request):
    """Find the largest value of all workers (`Fabric.maximum`)."""

    value: float


@dataclass(slots=True)
class Exchange(Request):
    """Send a buffer to one worker and receive one from another (`Fabric.exchange`)."""

    buffer: Tensor
    to: int
    source: int


@dataclass(slots=True)
class Gather(Request):
    """Collect the buffers of all workers (`Fabric.gather`)."""

    buffer: Tensor


@dataclass(slots=True)
class Scatter(Request):
    """Send a part to each worker (`Fabric.scatter`)."""

    parts: list[Tensor]


@dataclass(slots=True)
class SafePoint(Request):
    """Allow a checkpoint here (`Fabric.safe_point`)."""

    pass


@dataclass(slots=True)
class NextRound(Request):
    """Begin the next round of an elastic job (`Fabric.next_round`)."""

    period: int


@dataclass(slots=True)
class Compute(Request):
    """Do some work: training, or, where `what` names it, a strategy's own work, which reads and writes `moved` bytes."""

    work: Callable[[], Any]
    what: str = ""
    moved: float = 0.0


@dataclass(slots=True)
class TakeMinibatch(Request):
    """Take the next minibatch (`Fabric.take`)."""

    queue: bool
    unsettled: int
    group: range


@dataclass(slots=True)
class MoreMinibatches(Request):
    """Wait until there are more minibatches, or the epoch is over (`Fabric.more`)."""

    queue: bool
    unsettled: int
    group: range


@dataclass(slots=True)
class Call(Request):
    """Call another worker (`Fabric.call` and `Fabric.call_in_turn`)."""

    to: int
    buffer: Tensor
    value: float
    in_turn: bool
    patient: bool


@dataclass(slots=True)
class WithinGroup(Request):
    """Sum buffers within a group of workers, or broadcast that of the first one (`Fabric.sum_within`, `Fabric.broadcast_within`)."""

    buffer: Tensor
    value: float
    members: range
    sums: bool


@dataclass(slots=True)
class AwaitAnswer(Request):
    """Wait for the answer to a call (`Fabric.answer`)."""

    ticket: int


# A worker's function that answers calls: (rank of the caller, the buffer that it sent, its number) -> (a buffer or None, a number). The
# buffer sent is None where the call is refused because the worker is busy. The function may write its answer over the buffer that it
# was sent, unless that is lent (`Fabric.lend`). A buffer that it returns, and that is not lent, is read before anything else happens to
# the worker.
Handler = Callable[[int, Tensor | None, float], tuple[Tensor | None, float]]


class Fabric:
    """The operations of worker `rank` of `size` workers.

    `seconds` says where the worker's time of this epoch went, by `clock`, once that is settled.
    """

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.seconds = {"compute": 0.0, "exchange": 0.0, "wait": 0.0}
        self.clock = Clock()
        self.staleness: Counter[int] = Counter()  # staleness of an update -> number of such updates in this epoch
        self.node_size = size  # workers on a node, which have consecutive ranks; 0 where nodes have different numbers of workers
        self.living: Sequence[int] = range(size)  # ranks of the workers that have not died, as far as this process knows
        self.handler: Handler | None = None
        self.stacked = False  # the worker computes when the host asks it to, together with others
        self.measures_updates = False  # whether averages that are measured are to say `since` when their workers were one model
        self.elastic = False  # rounds are those that `next_round` gives, as workers may die and join

    async def compute(self, work: Callable[..., T], *arguments: Any) -> T:
        """Do `work(*arguments)`, and add its time to the seconds of computing."""
        if self.stacked:
            return cast(T, await Compute(partial(work, *arguments)))
        before = self.clock.mark()
        result = work(*arguments)
        self.clock.add(before, "compute", [self.seconds])
        return result

    async def work(self, what: str, work: Callable[[], T], over: Tensor, passes: float) -> T:
        """Do `work`, the strategy's own computation in an exchange, such as a filter. `what` names it in messages, with its article.

        The work takes about as long as `passes` passes over a buffer of the size of `over`: reading the buffer is one pass, writing it
        another. A prediction computes its seconds from this and the memory bandwidth of the device.
        """
        before = self.clock.mark()
        result = work()
        self.clock.add(before, "exchange", [self.seconds])
        return result

    async def average(self, buffer: Tensor, weight: float, measure: bool = False, since: Tensor | None = None) -> None:
        """Replace a buffer by the weighted mean: buffer <- sum_k weight_k buffer_k / sum_k weight_k over all workers k.

        Where all weights are 0 the buffer stays as it is. With `measure` the host also records how far the workers' buffers were from the
        mean; and where they all come from, `since`, whether they have moved one way (`Host.update_cosine`).
        """
        await Average(buffer, weight, measure, since)

    async def mean(self, buffer: Tensor, weight: float) -> Tensor:
        """Return the same weighted mean as `average`, in a new buffer.

        `buffer` stays as it is. The workers of a process share the new buffer.
        """
        return await Mean(buffer, weight)

    def begin(self, exchange: Coroutine[Any, Any, Any]) -> Awaitable[int]:
        """Begin an exchange in the background, such as `fabric.mean(buffer, weight)`, and return a ticket for `finish`.

        The worker goes on at once.

        `exchange` is a coroutine. Its requests must be of the kind that all workers make together, such as `mean` or `gather`. The buffers
        that it sends must not be changed before `finish`. Any number of exchanges can be under way: they are carried out one after the
        other, in the order in which they were begun. A checkpoint does not contain them: a strategy that is resumed first has to begin them
        again, in their order.
        """
        return Begin(exchange)

    def finish(self, ticket: int) -> Awaitable[Any]:
        """Wait for the end of an exchange that was begun, and return its result."""
        return Finish(ticket)

    async def sum(self, buffer: Tensor, value: float | None = None) -> float:
        """Replace a buffer by its sum, buffer <- sum_k buffer_k over all workers k, and return the sum of their values.

        Without values, which all workers give or none, it returns 0.
        """
        return await Sum(buffer, value)

    async def compute_parts(self, work: Callable[..., T], slices: Sequence[slice],
                            exchange: Callable[[int], Coroutine[Any, Any, Any]]) -> tuple[T, list[int]]:
        """Do `work`, which makes a buffer part by part, and begin to exchange each part while it makes the next.

        `work(parts=...)` tells the Parts that it is given which of the slices are made; what it does not tell of is made when it ends.
        `exchange(k)`, called then, makes what `begin` takes. Returns what `work` does, and a ticket for `finish` of each part. Of several
        workers of a process the last one's computing is overlapped, as the others have made all parts before.
        """
        return await ComputeParts(work, slices, exchange)

    async def total(self, value: float) -> float:
        """Return the sum of the workers' values."""
        return await Total(value)

    async def maximum(self, value: float) -> float:
        """Return the largest of the workers' values."""
        return await Maximum(value)

    async def exchange(self, buffer: Tensor, to: int, source: int) -> Tensor:
        """Send `buffer` to worker `to`, and return the buffer that worker `source` sends here.

        Every worker sends to one and receives from one.
        """
        return await Exchange(buffer, to, source)

    async def gather(self, buffer: Tensor) -> list[Tensor]:
        """Return the buffers of all workers, by rank. Their lengths may differ. Nobody may change any of them from then on."""
        return await Gather(buffer)

    async def scatter(self, parts: list[Tensor]) -> list[Tensor]:
        """Send part k to worker k, and return what each worker sent here, by rank. Nobody may change any of it from then on."""
        return await Scatter(parts)

    async def safe_point(self) -> None:
        """Say that a checkpoint can be taken here: models have been exchanged, and nothing is half done.

        Every worker has to call it equally often.
        """
        await SafePoint()

    async def next_round(self, period: int) -> tuple[int, int, int] | None:
        """Begin the next round, of up to `period` minibatches of a worker (0: a block of the partition), with the workers that live now.

        Returns (minibatches of this worker, rounds of the epoch before this one, rounds that follow), None at the end of the epoch. Only in
        elastic jobs, and only where nothing is half done: what workers have learnt since their last exchange is lost with them.
        """
        return await NextRound(period)

    def mark(self) -> None:
        """Say that the coroutine of an asynchronous worker could be restarted from here.

        When it is resumed from a checkpoint, it is given again the answers that it has received since it called `mark` last. So between two
        marks it may change its state only after its last request, or in the work of a `compute`, which is not done again.
        """

    def take(self, queue: bool, unsettled: int = 0, group: range | None = None) -> Awaitable[float | None]:
        """Take the worker's next minibatch: `worker.step` or `worker.gradient` will use it. None if there is none for it now.

        The minibatch is the next one of the worker's own part of the data. When that part is used up, it is one of another worker's part:
        of any worker with `queue`, else only of one that has died. Returns the fraction of the epoch's minibatches (without `queue`, of the
        own part's) that was taken before. `unsettled` says how many of the minibatches taken last are not yet settled: the other workers
        have received what the worker learnt from all those before. The workers of a `group` take their minibatches at the same time.
        """
        return TakeMinibatch(queue, unsettled, range(self.rank, self.rank + 1) if group is None else group)

    def more(self, queue: bool, unsettled: int = 0, group: range | None = None) -> Awaitable[bool]:
        """Wait, after `take` has returned None, for another minibatch, or for the end of the epoch's last.

        Returns True where there is another minibatch (a worker has died), False where all of the epoch are done. Of a `group` some may be
        told so and others not, but none has to rest for a checkpoint behind one that goes on.
        """
        return MoreMinibatches(queue, unsettled, range(self.rank, self.rank + 1) if group is None else group)

    @property
    def answers_while_computing(self) -> bool:
        """True where calls are answered while this worker computes. Answers must then not touch what it computes with."""
        return False

    def hold_calls(self) -> AbstractContextManager[object]:
        """A context in which no call to this worker is answered. Nothing may be awaited in it."""
        return contextlib.nullcontext()

    def sum_within(self, buffer: Tensor, value: float, members: range) -> Awaitable[float]:
        """Replace a buffer by its sum over a group of workers, of which this is one, and return the sum of their values."""
        return WithinGroup(buffer, value, members, True)

    def broadcast_within(self, buffer: Tensor, members: range) -> Awaitable[None]:
        """Replace a buffer by that of the first worker of a group."""
        return WithinGroup(buffer, 0.0, members, False)

    def lend(self, like: Tensor) -> Tensor:
        """Return a new buffer of the same shape as `like`, in memory that is shared with other processes where possible.

        It is sent without a copy.

        The worker fills it before it sends it. Nobody may write to it afterwards. Its memory is used again when no process refers to it any
        more.
        """
        return torch.empty_like(like)

    def polling(self) -> AbstractContextManager[object]:
        """A context in which this worker computes and calls `poll` from time to time. Other processes then need not wake it for a message.
        """
        return contextlib.nullcontext()

    def poll(self) -> None:
        """Handle the messages that have arrived meanwhile."""

    def poll_answer(self, ticket: int) -> tuple[Tensor | None, float] | None:
        """Return what `answer` would return, if the answer to a call has arrived, else None. To be called within `hold_calls`."""
        return None

    def serve(self, handler: Handler) -> None:
        """Answer the calls of others by `handler(sender, buffer, value)` when they arrive, one at a time, whatever this worker does."""
        self.handler = handler

    def call(self, to: int, buffer: Tensor, value: float) -> Awaitable[int]:
        """Send a buffer and a number to worker `to`, and go on at once. Returns a ticket; `answer` waits for the answer.

        When this returns, the caller may use the buffer again, unless it is lent.
        """
        return Call(to, buffer, value, False, True)

    def call_in_turn(self, to: int, buffer: Tensor, value: float, patient: bool = True) -> Awaitable[int]:
        """Call a worker that serves one such call at a time, as a parameter server does.

        The buffer must stay as it is until the answer has come.

        The worker is busy with a call from the first byte of the call to the last byte of the answer. Where it is busy, a patient call
        waits for its turn. A call that is not patient is refused at once: `handler(sender, None, value)` makes the answer to it.
        """
        return Call(to, buffer, value, True, patient)

    def answer(self, ticket: int) -> Awaitable[tuple[Tensor | None, float]]:
        """Wait for the answer to a call. Nobody may change its buffer. (None, 0) where the other worker has died."""
        return AwaitAnswer(ticket)


def num_bytes(buffer: Tensor) -> int:
    """The bytes of a buffer when it is sent: models are sent in single precision."""
    return 4 * buffer.numel() if buffer.dtype == torch.float64 else buffer.numel() * buffer.itemsize
