"""Calls from worker to worker in simulated time.

A call is a message, and its answer another (`parallel/clusters/network.py`). An end that is called in turn (a parameter server) is busy
from a message's first byte to the last one of its answer, with `server_seconds` in between; whoever is patient queues. Who calls a worker
that is gone, or waits for its answer, learns so after a latency.

All that is under way is data: tickets here, events of the host with their numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from pykaldist.parallel.clusters.network import Network
from pykaldist.parallel.fabric.interface import Call, Fabric, num_bytes

AddEvent = Callable[[float, int, str, Any], None]  # when, of which worker, what kind, about what
KINDS = ("arrival", "knock", "call", "over")  # of events; an arrival is of a message's first byte


@dataclass
class Ticket:
    """A call under way, with what is sent, then what is answered. `admitted`: when its turn came; `waiting`: its worker does."""

    rank: int
    to: int
    buffer: Tensor | None
    value: float
    patient: bool
    admitted: float
    over: bool = False
    waiting: bool = False


class SimulatedCalls:
    """Of all workers, whose ends are `fabrics` and of whom some are `living`. `busy`: seconds that ends called in turn have been."""

    def __init__(self, fabrics: Sequence[Fabric], living: list[int], network: Network, add_event: AddEvent) -> None:
        self._fabrics, self._living, self._network, self._add_event = fabrics, living, network, add_event
        self.server_seconds = 0.0
        self.reset()

    def reset(self) -> None:
        """The beginning of an epoch."""
        self._tickets: dict[int, Ticket] = {}
        self._lines: dict[int, list[int]] = {}  # worker that is called in turn -> tickets, the one being served first
        self.busy = 0.0

    @property
    def ends(self) -> int:
        """How many are called in turn."""
        return len(self._lines)

    def begin(self, time: float, rank: int, request: Call) -> int:
        """A worker calls: the ticket."""
        number = max(self._tickets, default=-1) + 1
        self._tickets[number] = Ticket(rank, request.to, request.buffer.clone(), request.value, request.patient, time)
        if request.to not in self._living:
            self._fail(time, number)
        elif request.in_turn:
            self._send(time, rank, request.to, None, "knock", number)
        else:
            self._send(time, rank, request.to, request.buffer, "call", number)
        return number

    def wait(self, number: int) -> tuple[Tensor | None, float] | None:
        """The answer to a ticket; None where its worker has to wait for it."""
        ticket = self._tickets[number]
        if not ticket.over:
            ticket.waiting = True
            return None
        del self._tickets[number]
        return ticket.buffer, ticket.value

    def on_event(self, time: float, rank: int, kind: str, about: Any) -> Ticket | None:
        """An event of a call of `rank`'s; its ticket where the worker that waits for it is to go on."""
        if kind == "arrival":
            port, seconds, later, kind, number = about
            self._add_event(self._network.arrive(time, port, seconds) + later, rank, kind, number)
        elif kind == "knock":
            self._knock(time, about)
        elif kind == "call":  # all of it has come, and is answered
            ticket = self._tickets[about]
            ticket.buffer, ticket.value = self._handle(ticket, ticket.buffer)
            self._send(time, ticket.to, rank, ticket.buffer, "over", about)
        else:
            return self._end(time, about)
        return None

    def lose(self, time: float, rank: int, events: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """A worker has died. The events that are left without calls to it, of which who made them learns so."""
        gone = {number for number, ticket in self._tickets.items() if ticket.rank == rank}
        for line in self._lines.values():
            served = line[:1]
            line[:] = [number for number in line if number not in gone]
            if line and served != line[:1]:
                self._let_in(time, line[0])
        for number in gone:
            del self._tickets[number]
        left = []
        for event in events:
            kind, number = event[3:] if event[3] != "arrival" else event[4][-2:]
            if kind in ("knock", "call") and self._tickets[number].to == rank:
                self._fail(time, number)
            else:
                left.append(event)
        return left

    def _send(self, time: float, sender: int, receiver: int, buffer: Tensor | None, kind: str, number: int, later: float = 0.0) -> None:
        """Send a message of call `number`; event `kind` comes when all of it has arrived, or `later` seconds after that."""
        rank = self._tickets[number].rank
        begin, port, seconds = self._network.depart(time, sender, receiver, 0 if buffer is None else num_bytes(buffer))
        if seconds:
            self._add_event(begin, rank, "arrival", [port, seconds, later, kind, number])
        else:
            self._add_event(begin + later, rank, kind, number)

    def _knock(self, time: float, number: int) -> None:
        """A call has come to an end that is called in turn."""
        ticket = self._tickets[number]
        line = self._lines.setdefault(ticket.to, [])
        if line and not ticket.patient:
            ticket.buffer, ticket.value = self._handle(ticket, None)
            self._send(time, ticket.to, ticket.rank, None, "over", number)
            return
        line.append(number)
        if len(line) == 1:
            self._let_in(time, number)

    def _let_in(self, time: float, number: int) -> None:
        ticket = self._tickets[number]
        ticket.admitted = time
        self._send(time, ticket.rank, ticket.to, ticket.buffer, "call", number, self.server_seconds)

    def _handle(self, ticket: Ticket, buffer: Tensor | None) -> tuple[Tensor | None, float]:
        handler = self._fabrics[ticket.to].handler
        if handler is None:
            raise RuntimeError(f"worker {ticket.rank} calls worker {ticket.to}, which serves nobody")
        answer, value = handler(ticket.rank, buffer, ticket.value)
        return answer if answer is None or answer is buffer else answer.clone(), value

    def _end(self, time: float, number: int) -> Ticket | None:
        """The answer has come."""
        ticket = self._tickets[number]
        ticket.over = True
        line = self._lines.get(ticket.to, [])
        if line and line[0] == number:
            line.pop(0)
            self.busy += time - ticket.admitted
            if line:
                self._let_in(time, line[0])
        if not ticket.waiting:
            return None
        del self._tickets[number]
        return ticket

    def _fail(self, time: float, number: int) -> None:
        """A call that nobody answers."""
        ticket = self._tickets[number]
        ticket.buffer, ticket.value = None, 0.0
        self._send(time, ticket.to, ticket.rank, None, "over", number)

    def state_dict(self) -> dict[str, Any]:
        return {"tickets": {number: vars(ticket) for number, ticket in self._tickets.items()}, "lines": self._lines, "busy": self.busy}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nobody waits: the workers start anew, up to what they wait for."""
        self._tickets = {number: Ticket(**{**ticket, "waiting": False}) for number, ticket in state["tickets"].items()}
        self._lines, self.busy = state["lines"], state["busy"]
