"""The combination of the last models of a training: the mean of those of the last epochs that is best on held-out data.

The models of the last epochs lie around one point of the parameters; their mean is nearer to it than each of them. Kaldi's
nnet3-chain-combine tries the means of the last 1, 2, ... models and keeps the one with the best objective, and so it is done here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from torch import Tensor


class LastModels:
    """The parameters of the last `count` accepted models; with a count of 1 nothing is kept."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.models: deque[Tensor] = deque(maxlen=count)

    def note(self, params: Tensor) -> None:
        """Take note of a model, the last one so far."""
        if self.count > 1:
            self.models.append(params.clone())

    def best_mean(self, loss: Callable[[Tensor], float]) -> tuple[int, float, Tensor]:
        """The mean of the last n models with the least loss: (n, loss, parameters)."""
        found, total = list[tuple[int, float, Tensor]](), self.models[-1].double() * 0.0
        for number, params in enumerate(reversed(self.models), 1):
            total += params
            mean = (total / number).to(params.dtype)
            found.append((number, loss(mean), mean))
            found = [min(found, key=lambda one: one[1])]
        return found[0]

    def state_dict(self) -> dict[str, Any]:
        return {"models": list(self.models)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.models = deque(state["models"], maxlen=self.count)
