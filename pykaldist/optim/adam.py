"""Adam with decoupled decay (AdamW).

Kingma & Ba, "Adam: a method for stochastic optimization", ICLR 2015, algorithm 1; Loshchilov & Hutter, "Decoupled weight decay
regularization", ICLR 2019. For the t-th update, with g the mean of the gradient over the minibatch's frames:
    m <- b1 m + (1 - b1) g,   v <- b2 v + (1 - b2) g^2,   u = (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps),   w <- w - lr u.
Each parameter moves by about the learning rate, whatever the size of its gradient. So a rate for Adam is no rate for SGD; 0.001 is usual,
and a map's learning-rate coefficients multiply u. The penalties are those of all optimisers, which act on parameters: `--l2-penalty` is the
decoupled decay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.nnet.factor import Factor
from pykaldist.nnet.learner import Learner
from pykaldist.optim.optimizer import Optimizer, OptimizerOptions
from pykaldist.options import option


@dataclass
class AdamOptions(OptimizerOptions):
    """The options of Adam. It has two means of gradients in place of a momentum."""

    beta1: float = option(0.9, "decay b1 of the mean of gradients, an update")
    beta2: float = option(0.999, "decay b2 of the mean of squared gradients, an update")
    epsilon: float = option(1e-8, "what is added to the root of the mean of squares")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.momentum:
            raise UserError(f"--momentum {self.momentum:g} is for SGD and NG-SGD; this optimiser has --beta1.")
        for name in ("beta1", "beta2"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise UserError(f"--{name} {getattr(self, name)} is outside [0, 1).")
        if self.epsilon <= 0.0:
            raise UserError(f"--epsilon {self.epsilon:g} is not positive.")


class Adam(Optimizer):
    """The optimiser Adam. `means` are those of gradients and of their squares, flat, and `count` the updates that are in them."""

    name = "adam"

    def __init__(self, learner: Learner, options: Any) -> None:
        super().__init__(learner, options)
        self.means = self.model.params.new_zeros(2, *self.model.params.shape)
        self.count = self.model.params.new_zeros(())
        self._coefs = _coefficients(learner)

    def _update(self, gradient: Tensor, frames: Factor) -> None:
        gradient.div_(frames)
        self.count.add_(1.0)
        self._to_direction(gradient)
        if self._coefs is not None:
            gradient.mul_(self._coefs)
        super()._update(gradient, frames)

    def _to_direction(self, gradient: Tensor) -> None:
        """Put the direction u of the update in the place of the mean gradient."""
        self._direction_of(gradient, slice(None))

    def _direction_of(self, gradient: Tensor, part: slice) -> None:
        """Put Adam's direction in the place of a part of the mean gradient."""
        o, (mean, square), g = self.options, self.means[:, ..., part], gradient[..., part]
        mean.lerp_(g, 1.0 - o.beta1)
        square.mul_(o.beta2).addcmul_(g, g, value=1.0 - o.beta2)
        root = torch.sqrt(square, out=g).div_(torch.sqrt(1.0 - o.beta2**self.count)).add_(o.epsilon)
        torch.div(mean, root, out=g).div_(1.0 - o.beta1**self.count)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "means": self.means, "count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.means.copy_(state["means"])
        self.count.copy_(state["count"])


def _coefficients(learner: Learner) -> Tensor | None:
    """The learning-rate coefficient of each parameter, flat; None where all are 1."""
    model = learner.model
    if all(map.learn_rate_coef == map.bias_learn_rate_coef == 1.0 for map in model.maps):
        return None
    coefs = torch.ones_like(model.params)
    for map, part in zip(model.maps, model.map_slices(), strict=True):
        weights = map.input_dim * map.output_dim
        coefs[..., part.start : part.start + weights] = map.learn_rate_coef
        coefs[..., part.start + weights : part.stop] = map.bias_learn_rate_coef
    return coefs
