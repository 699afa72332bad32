"""A host of virtual workers in one process that counts what their exchanges would take on a cluster.

A `Simulation` and a dry run use it for exchanges that are begun now and finished later. These have one channel: it carries one exchange
after the other. Each starts when it is begun, or when the one before has ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from pykaldist.parallel.clusters.network import Network
from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.fabric.interface import Begin, BeginParts

BACKWARD = 2 / 3  # part of a minibatch's seconds that its backward pass takes


class PricedHost(Host):
    """Carries out exchanges and counts their seconds.

    `took`: seconds of all exchanges so far. `ends`: ticket of an exchange under way -> the time when it ends.
    """

    def __init__(self, size: int, network: Network, deterministic: bool = False) -> None:
        super().__init__(size, None, deterministic)
        self.network = network
        self.reset()

    def reset(self) -> None:
        """Forget all exchanges, at the beginning of an epoch."""
        self.took, self._free = 0.0, 0.0
        self.ends: dict[int, float] = {}
        self._results: dict[int, list[Any]] = {}
        self._resumed: deque[float] = deque()

    def _answers_to(self, requests: list[Any]) -> list[Any]:
        self.took += self.network.seconds(requests)
        return super()._answers_to(requests)

    def _measure(self, buffers: list[Tensor], mean: Tensor, since: Tensor | None, weights: np.ndarray) -> None:
        """Do nothing: nobody asks for the disagreement here."""

    def begin(self, now: float, requests: list[Begin], inherited: deque[Any] | None = None) -> list[int]:
        """Begin an exchange that all workers make, at time `now`. Returns its ticket, once for each worker.

        `inherited`: results of exchanges that were begun before a checkpoint, which stand for them.
        """
        before, work = self.took, [r.exchange for r in requests]
        self._last_ticket += 1
        if inherited:
            for exchange in work:
                exchange.close()
        self._results[self._last_ticket] = [inherited.popleft()] * len(work) if inherited else self.run(work)
        self._free = self._resumed.popleft() if self._resumed else max(now, self._free) + self.took - before
        self.ends[self._last_ticket] = self._free
        return [self._last_ticket] * len(requests)

    def begin_parts(self, computed: Sequence[tuple[float, float]], requests: list[BeginParts]) -> list[list[int]]:
        """Begin the exchanges of the parts of a gradient, each when the last worker has made it; returns the tickets, for each worker.

        `computed`: when each worker's computing has ended, and how long it took. A minibatch's forward pass is a third of that. In the
        backward pass, whose products are two of three, the parts are made in proportion to their values.
        """
        slices, made, tickets = requests[0].slices, 0, []
        whole = sum(part.stop - part.start for part in slices)
        for number, part in enumerate(slices):
            made += part.stop - part.start
            left = BACKWARD * (1.0 - made / whole)
            now = max(end - left * seconds for end, seconds in computed)
            tickets.append(self.begin(now, [Begin(r.exchange(number)) for r in requests])[0])
        return [tickets] * len(requests)

    def finish(self, ticket: int) -> list[Any]:
        """Return each worker's result of an exchange that has ended."""
        del self.ends[ticket]
        return self._results.pop(ticket)

    def under_way(self) -> dict[int, Any]:
        """The result that the exchanges under way have for the first worker, by their tickets, in their order."""
        return {ticket: results[0] for ticket, results in self._results.items()}

    def state_dict(self) -> dict[str, Any]:
        return {"free": self._free, "ends": list(self.ends.values())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the times. The exchanges under way will be begun again, and then end when they would have ended."""
        self._free, self._resumed = state["free"], deque(state["ends"])

