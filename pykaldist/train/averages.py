"""Moving averages of the model: each worker's mean over its updates, in which old models count less and less.

    e <- d e + (1 - d) w,   d = min(--ema-decay, (1 + t) / (10 + t)),

w the worker's model after its t-th minibatch; so the first models are forgotten soon (Polyak & Juditsky, 1992; Izmailov et al., "Averaging
weights leads to wider optima and better generalization", 2018, with a constant rate). Training does not see e. At an epoch's end the
workers' e become their mean over workers, which is the model that the run ends with.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from pykaldist.parallel.fabric.processes import Processes


class MovingAverages:
    """The moving averages of a process's workers; with a decay of 0 there are none, and nothing is done.

    `accepted`: their mean over all workers at the end of the last accepted epoch.
    """

    def __init__(self, decay: float, params: Tensor, workers: int) -> None:
        self.decay = decay
        self.accepted = params.clone() if self else params.new_empty(0)
        self._own = [params.clone() for _ in range(workers)] if self else []

    def __bool__(self) -> bool:
        return self.decay > 0.0

    def start(self, params: Tensor) -> None:
        """Begin from a model."""
        if self:
            self.accepted.copy_(params)
        self.go_back()

    def go_back(self) -> None:
        """Forget what came after the last accepted epoch."""
        for own in self._own:
            own.copy_(self.accepted)

    def follow(self, index: int, params: Tensor, updates: int) -> None:
        """Take in a worker's model after a minibatch."""
        if self:
            self._own[index].lerp_(params, 1.0 - min(self.decay, (1.0 + updates) / (10.0 + updates)))

    def accept(self, living: Sequence[int], processes: Processes) -> None:
        """Take the mean over the workers of all processes, as the epoch is accepted; `living` are this one's that have not died."""
        if self:
            total = sum((self._own[index] for index in living), self.accepted.new_zeros(()))
            counted = self.accepted.new_zeros(len(self.accepted) + 1)
            counted[:-1], counted[-1] = total, len(living)
            processes.sum(counted, 1.0)
            self.accepted.copy_(counted[:-1] / counted[-1])
        self.go_back()

    def state_of(self, index: int) -> dict[str, Tensor]:
        """What a checkpoint has to hold for a worker."""
        return {"average": self._own[index] if self else self.accepted}

    def load(self, index: int, state: dict[str, Tensor]) -> None:
        """Take what a checkpoint holds for a worker."""
        if self:
            self._own[index].copy_(state["average"])
