"""A host of workers that are all in one process, whose exchanges take what they would take on a cluster.

It serves what a `Simulation` and a dry run have begun and will finish later: the channel of these exchanges carries one after the other,
each from when it was begun, or from the end of the one before.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from torch import Tensor

from pykaldist.parallel.clusters.network import Network
from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.fabric.interface import Begin


class Priced(Host):
    """`took`: seconds of the exchanges so far. `ends`: of those under way, when they end, by ticket."""

    def __init__(self, size: int, network: Network, deterministic: bool = False) -> None:
        super().__init__(size, None, deterministic)
        self.network = network
        self.reset()

    def reset(self) -> None:
        """The beginning of an epoch."""
        self.took, self._free = 0.0, 0.0
        self.ends: dict[int, float] = {}
        self._results: dict[int, list[Any]] = {}
        self._resumed: deque[float] = deque()

    def _met(self, requests: list[Any]) -> list[Any]:
        self.took += self.network.seconds(requests)
        return super()._met(requests)

    def _measure(self, buffers: list[Tensor], mean: Tensor) -> None:
        """Nobody asks how far they were apart."""

    def begin(self, now: float, requests: list[Begin]) -> list[int]:
        """The tickets of an exchange that all workers begin."""
        before, work = self.took, [r.exchange for r in requests]
        self._last_ticket += 1
        self._results[self._last_ticket] = self.run(work)
        self._free = self._resumed.popleft() if self._resumed else max(now, self._free) + self.took - before
        self.ends[self._last_ticket] = self._free
        return [self._last_ticket] * len(requests)

    def finish(self, ticket: int) -> list[Any]:
        """What each worker has of an exchange that has ended."""
        del self.ends[ticket]
        return self._results.pop(ticket)

    def state_dict(self) -> dict[str, Any]:
        return {"free": self._free, "ends": list(self.ends.values())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Those under way will be begun anew, and end when they would have."""
        self._free, self._resumed = state["free"], deque(state["ends"])

