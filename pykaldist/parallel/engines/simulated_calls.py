"""Simulated calls: calls from worker to worker in simulated time.

A call is a message, and its answer is another (`parallel/clusters/network.py`). A worker that is called in turn (a parameter server) is
busy from the first byte of a call to the last byte of its answer, with `server_seconds` in between. Patient calls wait in a queue. A worker
that calls a dead worker, or waits for its answer, learns this after one latency.

All that is under way is data: tickets here, and events of the simulation with their numbers. So a checkpoint can hold it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from pykaldist.parallel.clusters.network import Network
from pykaldist.parallel.fabric.interface import Call, Fabric, num_bytes

AddEvent = Callable[[float, int, str, Any], None]  # time, rank of the worker, kind, data
KINDS = ("arrival", "request", "call", "over")  # kinds of events; "arrival" is that of a message's first byte


@dataclass
class Ticket:
    """A call under way.

    `buffer` and `value` are first those that are sent, then those of the answer. `admitted` is when its turn came. `waiting`: the
    caller waits for the answer.
    """

    rank: int
    to: int
    buffer: Tensor | None
    value: float
    patient: bool
    admitted: float
    over: bool = False
    waiting: bool = False


class SimulatedCalls:
    """The calls of all workers. `fabrics` are the workers' operations, `living` the workers that have not died.

    `busy` are the seconds in which workers that are called in turn have been busy.
    """

    def __init__(self, fabrics: Sequence[Fabric], living: list[int], network: Network, add_event: AddEvent) -> None:
        self._fabrics, self._living, self._network, self._add_event = fabrics, living, network, add_event
        self.server_seconds = 0.0
        self.reset()

    def reset(self) -> None:
        """Forget all calls, at the beginning of an epoch."""
        self._tickets: dict[int, Ticket] = {}
        self._issued = 0  # tickets so far
        self._queues: dict[int, deque[int]] = {}  # worker that is called in turn -> tickets, first the one that is served now
        self.busy = 0.0

    @property
    def num_servers(self) -> int:
        """How many workers are called in turn."""
        return len(self._queues)

    def begin(self, time: float, rank: int, request: Call) -> int:
        """Send a call of worker `rank`. Returns its ticket."""
        number, self._issued = self._issued, self._issued + 1
        self._tickets[number] = Ticket(rank, request.to, request.buffer.clone(), request.value, request.patient, time)
        if request.to not in self._living:
            self._fail(time, number)
        elif request.in_turn:
            self._send(time, rank, request.to, None, "request", number)
        else:
            self._send(time, rank, request.to, request.buffer, "call", number)
        return number

    def wait(self, number: int) -> tuple[Tensor | None, float] | None:
        """Return the answer to a ticket; None where the worker has to wait for it."""
        ticket = self._tickets[number]
        if not ticket.over:
            ticket.waiting = True
            return None
        del self._tickets[number]
        return ticket.buffer, ticket.value

    def on_event(self, time: float, rank: int, kind: str, about: Any) -> Ticket | None:
        """Handle an event of a call that worker `rank` has made. Returns the call's ticket where this worker waits for it and is to go on.
        """
        if kind == "arrival":
            port, seconds, later, kind, number = about
            self._add_event(self._network.arrive(time, port, seconds) + later, rank, kind, number)
        elif kind == "request":
            self._handle_request_to_send(time, about)
        elif kind == "call":  # all of it has come, and is answered
            ticket = self._tickets[about]
            ticket.buffer, ticket.value = self._handle(ticket, ticket.buffer)
            self._send(time, ticket.to, rank, ticket.buffer, "over", about)
        else:
            return self._end(time, about)
        return None

    def remove_dead(self, time: float, rank: int, events: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Note that a worker has died. Returns the events without the calls to this worker; their callers learn that it is dead."""
        gone = {number for number, ticket in self._tickets.items() if ticket.rank == rank}
        for queue in self._queues.values():
            served, left = list(queue)[:1], [number for number in queue if number not in gone]
            queue.clear()
            queue.extend(left)
            if left and served != left[:1]:
                self._admit(time, left[0])
        for number in gone:
            del self._tickets[number]
        kept = []
        for event in events:
            kind, number = event[3:] if event[3] != "arrival" else event[4][-2:]
            if kind in ("request", "call") and self._tickets[number].to == rank:
                self._fail(time, number)
            else:
                kept.append(event)
        return kept

    def _send(self, time: float, sender: int, receiver: int, buffer: Tensor | None, kind: str, number: int, later: float = 0.0) -> None:
        """Send a message of call `number`. Event `kind` comes when all of it has arrived, or `later` seconds after that."""
        rank = self._tickets[number].rank
        begin, port, seconds = self._network.depart(time, sender, receiver, 0 if buffer is None else num_bytes(buffer))
        if seconds:
            self._add_event(begin, rank, "arrival", [port, seconds, later, kind, number])
        else:
            self._add_event(begin + later, rank, kind, number)

    def _handle_request_to_send(self, time: float, number: int) -> None:
        """Admit a call to a worker that is called in turn, or put it into the queue, or refuse it."""
        ticket = self._tickets[number]
        queue = self._queues.setdefault(ticket.to, deque())
        if queue and not ticket.patient:
            ticket.buffer, ticket.value = self._handle(ticket, None)
            self._send(time, ticket.to, ticket.rank, None, "over", number)
            return
        queue.append(number)
        if len(queue) == 1:
            self._admit(time, number)

    def _admit(self, time: float, number: int) -> None:
        """Let the caller send the call itself."""
        ticket = self._tickets[number]
        ticket.admitted = time
        self._send(time, ticket.rank, ticket.to, ticket.buffer, "call", number, self.server_seconds)

    def _handle(self, ticket: Ticket, buffer: Tensor | None) -> tuple[Tensor | None, float]:
        """The answer of the called worker to a buffer, or to None where the call is refused."""
        handler = self._fabrics[ticket.to].handler
        if handler is None:
            raise RuntimeError(f"worker {ticket.rank} calls worker {ticket.to}, which serves nobody")
        answer, value = handler(ticket.rank, buffer, ticket.value)
        return answer if answer is None or answer is buffer else answer.clone(), value

    def _end(self, time: float, number: int) -> Ticket | None:
        """Handle the arrival of an answer."""
        ticket = self._tickets[number]
        ticket.over = True
        queue = self._queues.get(ticket.to)
        if queue and queue[0] == number:
            queue.popleft()
            self.busy += time - ticket.admitted
            if queue:
                self._admit(time, queue[0])
        if not ticket.waiting:
            return None
        del self._tickets[number]
        return ticket

    def _fail(self, time: float, number: int) -> None:
        """Answer a call to a dead worker."""
        ticket = self._tickets[number]
        ticket.buffer, ticket.value = None, 0.0
        self._send(time, ticket.to, ticket.rank, None, "over", number)

    def state_dict(self) -> dict[str, Any]:
        return {"tickets": {number: vars(ticket) for number, ticket in self._tickets.items()}, "issued": self._issued,
                "lines": {rank: list(queue) for rank, queue in self._queues.items()}, "busy": self.busy}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the calls. No worker waits yet: each is restarted up to the request for which it waits."""
        self._tickets = {number: Ticket(**{**ticket, "waiting": False}) for number, ticket in state["tickets"].items()}
        self._queues = {rank: deque(line) for rank, line in state["lines"].items()}
        self._issued, self.busy = state["issued"], state["busy"]
