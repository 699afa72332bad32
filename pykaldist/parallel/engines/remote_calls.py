"""Calls from worker to worker, over the processes of a job.

A call is a message with its buffer, and its answer another. A call in turn is a knock first; what it brings is granted, one after the
other, or denied, and then it is as any call; the end is free again when the answer has arrived, which the caller says, or is where both
find it. Between processes of one machine the buffer lies in memory that both share, and the answer is written where the call stood. What a
worker itself has lent is not written to, and not copied into that memory, where it lies already, neither for a call nor for an answer.

Everything here runs with the host's lock, on the main thread or on one that reads.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from pykaldist.parallel.engines.asynchronous_host import AsynchronousHost
from pykaldist.parallel.fabric.interface import Call
from pykaldist.parallel.transport.transport import ANSWER, CALL, FREE, GRANT, KNOCK, Transport


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
    shared: bool = False  # the buffer lies in memory that both share
    in_turn: bool = False
    patient: bool = True


class Calls:
    """Those that workers of this process make, and those that come to them.

    `on_answer(place, answer)` is called with what the worker number `place` here waits for. `busy`: seconds that ends called in turn have
    been; `ends`: how many of those are here.
    """

    def __init__(self, host: AsynchronousHost, on_answer: Callable[[int, tuple[Tensor | None, float]], None]) -> None:
        self._host, self._on_answer = host, on_answer
        self._early: list[Arrival] = []  # calls to who does not serve yet
        self._numbers = 0  # of tickets
        self.reset()

    def reset(self) -> None:
        """The beginning of an epoch, at which nothing is under way but what those have sent who have begun it earlier."""
        self._tickets: dict[int, Ticket] = {}
        self._waiting: dict[int, int] = {}  # ticket -> the worker here that waits for it
        self._lines: dict[int, deque[Arrival]] = {}  # end here that is called in turn -> calls, the one being served first
        self._admitted: dict[int, float] = {}  # end here -> when that was let in
        self.busy = 0.0

    @property
    def ends(self) -> int:
        return len(self._admitted)

    def begin(self, place: int, request: Call) -> int:
        """A worker here calls: the ticket."""
        host = self._host
        self._numbers += 1
        number, sender = self._numbers, host.ranks[place]
        ticket = self._tickets[number] = Ticket(place, request.to, request.buffer, request.value)
        if request.to not in host.living:
            ticket.over, ticket.value = True, 0.0
        elif request.to in host.ranks:
            buffer = ticket.sent if self._is_lent(ticket.sent) else ticket.sent.clone()
            self._arrive(Arrival(None, sender, request.to, number, request.value, buffer, in_turn=request.in_turn, patient=request.patient))
        elif request.in_turn:
            self._transport.send(host.hosting(request.to), KNOCK, [sender, request.to, number, request.value, request.patient])
        else:
            self._send(host.hosting(request.to), number)
        return number

    def come(self, number: int) -> tuple[Tensor | None, float] | None:
        """The answer to a ticket that is still to be waited for; None where it has not come."""
        ticket = self._tickets[number]
        return (ticket.buffer, ticket.value) if ticket.over else None

    def wait(self, place: int, number: int) -> tuple[Tensor | None, float] | None:
        """The answer to a ticket; None where the worker that is number `place` here has to wait for it."""
        if self._tickets[number].over:
            ticket = self._tickets.pop(number)
            return ticket.buffer, ticket.value
        self._waiting[number] = place
        return None

    def heed(self, peer: int, kind: int, numbers: list[float], buffer: Tensor | None) -> None:
        """A message of another process."""
        if kind == CALL:
            sender, to, ticket, value = int(numbers[0]), int(numbers[1]), int(numbers[2]), numbers[3]
            shared = self._transport.shares(peer)
            if arrival := self._served(to, peer, ticket):
                arrival.buffer, arrival.shared = buffer, shared
                self._finish(arrival)
            else:
                self._arrive(Arrival(peer, sender, to, ticket, value, buffer, shared))
        elif kind == ANSWER:
            number, value, in_place, end = int(numbers[0]), *numbers[1:]
            if in_place and number in self._tickets:
                buffer = self._tickets[number].sent
            if end >= 0:
                self._transport.send(peer, FREE, [end, number])
            self._come(number, buffer, value)
        elif kind == FREE:
            if self._served(int(numbers[0]), peer, int(numbers[1])):
                self._leave(int(numbers[0]))
        elif kind == KNOCK:
            sender, to, ticket, patient = (int(numbers[i]) for i in (0, 1, 2, 4))
            self._arrive(Arrival(peer, sender, to, ticket, numbers[3], in_turn=True, patient=bool(patient)))
        elif kind == GRANT:
            self._send(peer, int(numbers[0]))

    def lose(self, peer: int, ranks: range) -> None:
        """A process has ended, and its workers with it."""
        self._early = [arrival for arrival in self._early if arrival.peer != peer]
        for end, line in self._lines.items():
            served = line[0] if line else None
            self._lines[end] = left = deque(arrival for arrival in line if arrival.peer != peer)
            if served is not None and served.peer == peer:
                self.busy += time.perf_counter() - self._admitted[end]
                if left:
                    self._let_in(end)
        for number in [number for number, ticket in self._tickets.items() if ticket.to in ranks]:
            self._come(number, None, 0.0)

    @property
    def _transport(self) -> Transport:
        assert self._host.transport is not None
        return self._host.transport

    def _is_lent(self, buffer: Tensor) -> bool:
        return self._host.transport is not None and self._host.transport.is_lent(buffer)

    def _served(self, end: int, peer: int, ticket: int) -> Arrival | None:
        """The call of a process that an end here serves now, if it is this one."""
        line = self._lines.get(end)
        return line[0] if line and (line[0].peer, line[0].ticket) == (peer, ticket) else None

    def _send(self, to: int, number: int) -> None:
        """The call itself, with its buffer, to a process."""
        ticket = self._tickets[number]
        if ticket.sent.is_cuda or not self._is_lent(ticket.sent):
            ticket.sent = self._transport.placed(to, ticket.sent)
        self._transport.send(to, CALL, [self._host.ranks[ticket.place], ticket.to, number, ticket.value], ticket.sent)

    def _arrive(self, arrival: Arrival) -> None:
        """A call, or a knock, has come."""
        handler = self._host.handler(arrival.to)
        if handler is None:
            self._early.append(arrival)
        elif not arrival.in_turn:
            self._reply(arrival, *handler(arrival.sender, self._host.on_device(arrival.buffer), arrival.value))
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
            self._transport.send(arrival.peer, GRANT, [arrival.ticket])

    def _finish(self, arrival: Arrival) -> None:
        """All of a call in turn has come."""
        handler = self._host.handler(arrival.to)
        assert handler is not None
        if self._reply(arrival, *handler(arrival.sender, self._host.on_device(arrival.buffer), arrival.value)):
            self._leave(arrival.to)

    def _leave(self, end: int) -> None:
        """The first of a line has its answer."""
        self._lines[end].popleft()
        self.busy += time.perf_counter() - self._admitted[end]
        if self._lines[end]:
            self._let_in(end)

    def _reply(self, arrival: Arrival, buffer: Tensor | None, value: float) -> bool:
        """The answer; what belongs to the worker, and is not lent, is copied, as it may change (sending copies, too). False where a call in
        turn is not over yet: the caller will say when its answer has arrived."""
        own, peer = arrival.buffer, arrival.peer
        if buffer is not None and buffer is not own:
            if self._is_lent(buffer):
                buffer = self._transport.placed(peer, buffer) if peer is not None and buffer.is_cuda else buffer
            elif own is not None and len(own) == len(buffer) and (peer is None or arrival.shared):
                buffer = own.copy_(buffer)
            else:
                buffer = buffer.clone() if peer is None else self._transport.placed(peer, buffer)
        if peer is None:
            self._come(arrival.ticket, buffer, value)
            return True
        in_place = arrival.shared and buffer is own
        travels = arrival.in_turn and buffer is not None and not self._transport.shares(peer)
        self._transport.send(peer, ANSWER, [arrival.ticket, value, in_place, arrival.to if travels else -1], None if in_place else buffer)
        return not travels

    def _come(self, number: int, buffer: Tensor | None, value: float) -> None:
        """The answer to a call of a worker here."""
        ticket = self._tickets.get(number)
        if ticket is None or ticket.over:
            return
        buffer = self._host.on_device(buffer)
        ticket.over, ticket.buffer, ticket.value = True, buffer, value
        if number in self._waiting:
            del self._tickets[number]
            self._on_answer(self._waiting.pop(number), (buffer, value))
