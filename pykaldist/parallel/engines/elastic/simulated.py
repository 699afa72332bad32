"""Deaths and replacements of workers in simulated time, as a cluster file scripts them, in an elastic job.

A worker that dies is gone from then on, with what it has under way; the others notice it then at the earliest. One that replaces it joins
when the next round begins. That takes no simulated time.
"""

from __future__ import annotations

import bisect
import heapq
from abc import abstractmethod
from collections import deque
from collections.abc import Coroutine
from typing import Any

from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.engines.priced import PricedHost
from pykaldist.parallel.fabric.interface import Begin, NextRound


class SimulatedChanges(Host):
    """The part of a `Simulation` that removes workers from an elastic job, and takes them in."""

    _events: list[tuple[float, int, int, str, Any]]
    _priced: PricedHost
    _computing: list[bool]
    _clock: list[float]
    _work: list[Coroutine[Any, Any, Any]]
    _going: set[int]
    _before: float

    def __init__(self, size: int, deterministic: bool = False) -> None:
        super().__init__(size, None, deterministic)
        self._past: list[int] = []  # numbers of the cluster's failures and joins that have been
        self._coming: list[int] = []  # workers that join when the next round begins
        self._serve[NextRound] = self._next_round

    @abstractmethod
    def _drive(self, rank: int, answer: Any) -> None:
        """Run a worker with an answer, up to a request for which it has to wait."""

    def _reset_changes(self) -> None:
        """Forget what is under way, at the beginning of an epoch."""
        self._noticed = 0.0  # time when a worker was lost
        self._newcomers: list[int] = []
        self._inherited: dict[int, deque[int]] = {}  # worker that joins -> tickets of the exchanges under way

    def _remove_lost(self, time: float, rank: int) -> None:
        """Remove a worker of an elastic job. Its data is dealt out when the next round begins."""
        self._noticed = time
        self._computing[rank] = False
        self._events = [event for event in self._events if event[1] != rank or event[3] in ("failure", "join")]
        heapq.heapify(self._events)
        self.log(f"worker {rank} has died at {self._before + time:.3f} s")

    def _on_join(self, time: float, rank: int, number: int) -> None:
        self._past.append(number)
        if rank not in self.living and rank not in self._coming:
            self._coming.append(rank)

    def _admit(self, time: float) -> None:
        """Let the workers join that have come; each goes on to where the others are: the beginning of a round."""
        assert self.join is not None
        tickets, state = self._priced.under_way(), self.state_of(self.living[0])
        self._newcomers, self._coming = sorted(self._coming), []
        for rank in self._newcomers:
            self._work[rank].close()
            self._work[rank], self._inherited[rank] = self.join(rank, state), deque(tickets)
            bisect.insort(self.living, rank)
            self._going.add(rank)
            self._clock[rank] = time
            self._drive(rank, None)

    def _next_round(self, requests: list[NextRound]) -> list[Any]:
        assert self.elastic is not None
        workers, joined = {rank: self.workers[rank] for rank in self.living}, self._newcomers
        self._newcomers = []
        return list(self.elastic.next_round(workers, list(self.living), joined, requests[0].period).values())

    def _inherit(self, rank: int, request: Begin) -> int:
        """The ticket of an exchange that is under way, for a worker that joins, in place of beginning it again."""
        request.exchange.close()
        return self._inherited[rank].popleft()

    def _changes_state(self) -> dict[str, Any]:
        """What a checkpoint has to hold of all this."""
        found: dict[str, Any] = {"past": self._past, "coming": self._coming, "noticed": self._noticed}
        if self.elastic:
            found["elastic"] = self.elastic.state_dict(list(self._priced.under_way().values()))
        return found

    def _load_changes(self, state: dict[str, Any]) -> None:
        self._past, self._coming, self._noticed = list(state["past"]), list(state["coming"]), state["noticed"]
        if self.elastic:
            self.elastic.load_state_dict(state["elastic"])
