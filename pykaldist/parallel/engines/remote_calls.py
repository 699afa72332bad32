"""Remote calls: calls from worker to worker over the processes of a job.

A call is a message with a buffer, and its answer is another message. A call in turn begins with a short message, a request to send. The
worker that is called grants these requests one after the other, or refuses them. After the grant, the call goes on as any other. The worker
that is called is free again when the answer has arrived: the caller says so by a message, or, where both share memory, the answer is there
at once. Between processes of one machine the buffer lies in memory that both share, and the answer is written over the call. A buffer that
a worker has lent (`Fabric.lend`) is not written to, and is not copied, as it lies in shared memory already. This holds for calls and for
answers.

All of this runs with the host's lock held, on the main thread or on the thread that reads messages.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from pykaldist.parallel.engines.asynchronous_host import AsynchronousHost
from pykaldist.parallel.fabric.interface import Call
from pykaldist.parallel.transport.transport import ANSWER, CALL, GRANT, RELEASE, REQUEST_TO_SEND, Transport


@dataclass
class Ticket:
    """A call that the worker number `index` of this process has made.

    It holds the answer when it is `over`. The buffer `sent` is kept until then.
    """

    index: int
    to: int
    sent: Tensor
    value: float
    over: bool = False
    buffer: Tensor | None = None


@dataclass
class IncomingCall:
    """A call that has arrived, or its request to send: from process `peer` (None: this process), from worker `sender` to worker `to`."""

    peer: int | None
    sender: int
    to: int
    ticket: int
    value: float
    buffer: Tensor | None = None
    shared: bool = False  # the buffer lies in memory that both processes share
    in_turn: bool = False
    patient: bool = True


class RemoteCalls:
    """The calls that workers of this process make, and those that arrive for them.

    `on_answer(index, answer)` is called when the answer has come for which worker number `index` of this process waits. `busy` are the
    seconds in which workers of this process that are called in turn, such as parameter servers, have been busy; `num_servers` is the number
    of these.
    """

    def __init__(self, host: AsynchronousHost, on_answer: Callable[[int, tuple[Tensor | None, float]], None]) -> None:
        self._host, self._on_answer = host, on_answer
        self._early: list[IncomingCall] = []  # calls to workers that do not serve yet
        self._numbers = 0  # of tickets so far
        self.reset()

    def reset(self) -> None:
        """Begin an epoch. Nothing is under way then, but early calls from processes that have begun the epoch sooner."""
        self._tickets: dict[int, Ticket] = {}
        self._waiting: dict[int, int] = {}  # ticket -> number of the worker here that waits for it
        self._queues: dict[int, deque[IncomingCall]] = {}  # worker here that is called in turn -> calls, first the one that is served now
        self._admitted: dict[int, float] = {}  # worker here -> time when the call that is served now was admitted
        self.busy = 0.0

    @property
    def num_servers(self) -> int:
        """How many workers of this process are called in turn."""
        return len(self._admitted)

    def begin(self, index: int, request: Call) -> int:
        """Send a call of a worker here. Returns its ticket."""
        host = self._host
        self._numbers += 1
        number, sender = self._numbers, host.ranks[index]
        ticket = self._tickets[number] = Ticket(index, request.to, request.buffer, request.value)
        if request.to not in host.living:
            ticket.over, ticket.value = True, 0.0
        elif request.to in host.ranks:
            buffer = ticket.sent if self._is_lent(ticket.sent) else ticket.sent.clone()
            self._handle_call(IncomingCall(None, sender, request.to, number, request.value, buffer, in_turn=request.in_turn,
                                           patient=request.patient))
        elif request.in_turn:
            self._transport.send(host.hosting(request.to), REQUEST_TO_SEND, [sender, request.to, number, request.value, request.patient])
        else:
            self._send(host.hosting(request.to), number)
        return number

    def poll_answer(self, number: int) -> tuple[Tensor | None, float] | None:
        """Return the answer to a ticket, which stays valid; None where the answer has not come."""
        ticket = self._tickets[number]
        return (ticket.buffer, ticket.value) if ticket.over else None

    def wait(self, index: int, number: int) -> tuple[Tensor | None, float] | None:
        """Return the answer to a ticket; None where it has not come: then `on_answer` will be called for worker number `index`."""
        if self._tickets[number].over:
            ticket = self._tickets.pop(number)
            return ticket.buffer, ticket.value
        self._waiting[number] = index
        return None

    def handle_message(self, peer: int, kind: int, numbers: list[float], buffer: Tensor | None) -> None:
        """Handle a message of another process."""
        if kind == CALL:
            sender, to, ticket, value = int(numbers[0]), int(numbers[1]), int(numbers[2]), numbers[3]
            shared = self._transport.shares(peer)
            if arrival := self._call_in_service(to, peer, ticket):
                arrival.buffer, arrival.shared = buffer, shared
                self._finish(arrival)
            else:
                self._handle_call(IncomingCall(peer, sender, to, ticket, value, buffer, shared))
        elif kind == ANSWER:
            number, value, in_place, end = int(numbers[0]), *numbers[1:]
            if in_place and number in self._tickets:
                buffer = self._tickets[number].sent
            if end >= 0:
                self._transport.send(peer, RELEASE, [end, number])
            self._handle_answer(number, buffer, value)
        elif kind == RELEASE:
            if self._call_in_service(int(numbers[0]), peer, int(numbers[1])):
                self._release(int(numbers[0]))
        elif kind == REQUEST_TO_SEND:
            sender, to, ticket, patient = (int(numbers[i]) for i in (0, 1, 2, 4))
            self._handle_call(IncomingCall(peer, sender, to, ticket, numbers[3], in_turn=True, patient=bool(patient)))
        elif kind == GRANT:
            self._send(peer, int(numbers[0]))

    def remove_dead(self, peer: int, ranks: range) -> None:
        """Note that process `peer` has ended, and with it the workers `ranks`."""
        self._early = [arrival for arrival in self._early if arrival.peer != peer]
        for end, queue in self._queues.items():
            served = queue[0] if queue else None
            self._queues[end] = left = deque(arrival for arrival in queue if arrival.peer != peer)
            if served is not None and served.peer == peer:
                self.busy += time.perf_counter() - self._admitted[end]
                if left:
                    self._admit(end)
        for number in [number for number, ticket in self._tickets.items() if ticket.to in ranks]:
            self._handle_answer(number, None, 0.0)

    @property
    def _transport(self) -> Transport:
        assert self._host.transport is not None
        return self._host.transport

    def _is_lent(self, buffer: Tensor) -> bool:
        return self._host.transport is not None and self._host.transport.is_lent(buffer)

    def _call_in_service(self, end: int, peer: int, ticket: int) -> IncomingCall | None:
        """The call that worker `end` here serves now, if it is this ticket of this process."""
        queue = self._queues.get(end)
        return queue[0] if queue and (queue[0].peer, queue[0].ticket) == (peer, ticket) else None

    def _send(self, to: int, number: int) -> None:
        """Send the call itself, with its buffer, to a process."""
        ticket = self._tickets[number]
        if ticket.sent.is_cuda or not self._is_lent(ticket.sent):
            ticket.sent = self._transport.sendable(to, ticket.sent)
        self._transport.send(to, CALL, [self._host.ranks[ticket.index], ticket.to, number, ticket.value], ticket.sent)

    def _handle_call(self, arrival: IncomingCall) -> None:
        """Answer a call that has arrived, or put a request to send into its queue."""
        handler = self._host.handler(arrival.to)
        if handler is None:
            self._early.append(arrival)
        elif not arrival.in_turn:
            self._send_reply(arrival, *handler(arrival.sender, self._host.on_device(arrival.buffer), arrival.value))
        else:
            queue = self._queues.setdefault(arrival.to, deque())
            self._admitted.setdefault(arrival.to, 0.0)
            if queue and not arrival.patient:
                self._send_reply(arrival, *handler(arrival.sender, None, arrival.value))
                return
            queue.append(arrival)
            if len(queue) == 1:
                self._admit(arrival.to)

    def answer_early_calls(self) -> None:
        """Handle the calls that came before a worker here began to serve."""
        early, self._early = self._early, []
        for arrival in early:
            self._handle_call(arrival)

    def _admit(self, end: int) -> None:
        """Begin to serve the first call of a queue."""
        arrival = self._queues[end][0]
        self._admitted[end] = time.perf_counter()
        if arrival.peer is None:
            self._finish(arrival)
        else:
            self._transport.send(arrival.peer, GRANT, [arrival.ticket])

    def _finish(self, arrival: IncomingCall) -> None:
        """Answer a call in turn, all of which has arrived."""
        handler = self._host.handler(arrival.to)
        assert handler is not None
        if self._send_reply(arrival, *handler(arrival.sender, self._host.on_device(arrival.buffer), arrival.value)):
            self._release(arrival.to)

    def _release(self, end: int) -> None:
        """End the call that is served now: its answer has arrived at the caller. Then serve the next one."""
        self._queues[end].popleft()
        self.busy += time.perf_counter() - self._admitted[end]
        if self._queues[end]:
            self._admit(end)

    def _send_reply(self, arrival: IncomingCall, buffer: Tensor | None, value: float) -> bool:
        """Send an answer. Returns False where a call in turn is not over yet: the caller will say when its answer has arrived.

        A buffer that belongs to the worker, and is not lent, is copied, since it may change. Sending copies, too.
        """
        own, peer = arrival.buffer, arrival.peer
        if buffer is not None and buffer is not own:
            if self._is_lent(buffer):
                buffer = self._transport.sendable(peer, buffer) if peer is not None and buffer.is_cuda else buffer
            elif own is not None and len(own) == len(buffer) and (peer is None or arrival.shared):
                buffer = own.copy_(buffer)
            else:
                buffer = buffer.clone() if peer is None else self._transport.sendable(peer, buffer)
        if peer is None:
            self._handle_answer(arrival.ticket, buffer, value)
            return True
        in_place = arrival.shared and buffer is own
        travels = arrival.in_turn and buffer is not None and not self._transport.shares(peer)
        self._transport.send(peer, ANSWER, [arrival.ticket, value, in_place, arrival.to if travels else -1], None if in_place else buffer)
        return not travels

    def _handle_answer(self, number: int, buffer: Tensor | None, value: float) -> None:
        """Store the answer to a call of a worker here, and pass it on if the worker waits for it."""
        ticket = self._tickets.get(number)
        if ticket is None or ticket.over:
            return
        buffer = self._host.on_device(buffer)
        ticket.over, ticket.buffer, ticket.value = True, buffer, value
        if number in self._waiting:
            del self._tickets[number]
            self._on_answer(self._waiting.pop(number), (buffer, value))
