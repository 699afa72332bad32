"""Stochastic gradient descent with momentum, in nnet1's convention.

For a minibatch of n frames with summed gradient g:
    v <- m v + g;   w <- w - lr v;   weights also  w <- w (1 - lr l2 n)      (biases are not penalised)
The learning rate multiplies a sum over frames, so that it is n times smaller than one for means.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.nnet.model import Model
from pykaldist.options import option


@dataclass
class SgdOptions:
    """SGD."""

    momentum: float = option(0.0, "momentum m of v = m v + g")
    l2_penalty: float = option(0.0, "L2 penalty on weights, a frame")

    def __post_init__(self) -> None:
        if not 0.0 <= self.momentum < 1.0:
            raise UserError(f"--momentum {self.momentum} is outside [0, 1).")
        if self.l2_penalty < 0.0:
            raise UserError(f"--l2-penalty {self.l2_penalty} is negative.")


class Sgd:
    """The optimiser of one worker; its momentum buffer is flat, like the parameters."""

    def __init__(self, model: Model, options: SgdOptions) -> None:
        self.model, self.options = model, options
        self.velocity = torch.zeros_like(model.params)
        self._weights = [v for component in model.views(model.params) for v in component if v.dim() > 1]

    def local_step(self, dlogits: Tensor, learn_rate: float, frames: int) -> None:
        """Backward pass and update in one: the momentum is applied inside the matrix products."""
        self.model.backward(dlogits, self.velocity, self.options.momentum)
        self._update(learn_rate, frames)

    def apply(self, gradient: Tensor, learn_rate: float, frames: int) -> None:
        """Update from a gradient made elsewhere, summed over `frames` frames."""
        self.velocity.mul_(self.options.momentum).add_(gradient)
        self._update(learn_rate, frames)

    def _update(self, learn_rate: float, frames: int) -> None:
        if self.options.l2_penalty > 0.0:
            for weight in self._weights:
                weight.mul_(1.0 - learn_rate * self.options.l2_penalty * frames)
        self.model.params.add_(self.velocity, alpha=-learn_rate)

    def state_dict(self) -> dict[str, Any]:
        return {"velocity": self.velocity.cpu()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.velocity.copy_(state["velocity"])
