"""The update of an RBM, as nnet1 makes it: momentum on a schedule, and the guard of Gaussian-Bernoulli RBMs.

For a minibatch of n frames with summed gradient g, learning rate lr, momentum m:
    r <- lr (1 - m);   v <- m v + r (g / n + l2 W);   w <- w - v            (l2 on weights alone)
A step's total effect is r / (1 - m) = lr times its gradient, whatever m is.
The momentum rises from `momentum` to `momentum_max` in `momentum_steps` equal steps, one each `momentum_step_period` frames.

Guard: where the reconstruction's standard deviation is more than twice the data's, the update is skipped and instead
    w <- w stddev(data) / stddev(reconstruction);   v <- 0;   lr <- 0.9 lr from then on
A minibatch that calls for it is not known to the host: all of this is arithmetic on the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.frames.sampler import Minibatch
from pykaldist.kernels import kernel
from pykaldist.nnet.factor import Factor
from pykaldist.nnet.gemm import root_
from pykaldist.nnet.rbm import ContrastiveDivergence
from pykaldist.optim.optimizer import Optimizer
from pykaldist.options import option

GUARD_RATIO = 2.0  # of the standard deviations of reconstruction and data
GUARD_SLOWDOWN = 0.9


@kernel(nogil=True)
def _step(params: np.ndarray, velocity: np.ndarray, gradient: np.ndarray, weights: int, momentum: float, rate: float, l2: float,
          l2_rate: float, scale: float) -> None:  # pragma: no cover - compiled
    """The update, in one pass by one thread. Sums are made in float64, which rounds float32 once, as a fused multiplication does.

    `weights` parameters come first, and have the L2 penalty; a `scale` that is not 1 is the guard's.
    """
    blown = scale != 1
    for i in range(len(params)):
        new = params.dtype.type(np.float64(velocity[i] * momentum) + np.float64(gradient[i]) * np.float64(rate))
        if i < weights and l2 > 0:
            new = params.dtype.type(np.float64(new) + np.float64(l2 * params[i]) * np.float64(l2_rate))
        velocity[i] = 0 if blown else new
        params[i] = params[i] * scale if blown else params[i] - new


@dataclass
class CdOptions:
    """The options of contrastive divergence: momentum and penalty."""

    momentum: float = option(0.5, "momentum at the start")
    momentum_max: float = option(0.9, "momentum at the end of its schedule")
    momentum_steps: int = option(40, "steps of the momentum from start to end")
    momentum_step_period: int = option(500_000, "frames in such a step")
    l2_penalty: float = option(0.0002, "L2 penalty on weights")

    def __post_init__(self) -> None:
        if not 0.0 <= self.momentum <= self.momentum_max < 1.0:
            raise UserError(f"--momentum {self.momentum:g} --momentum-max {self.momentum_max:g}: expected the first to be no more than the "
                            "second, and both in [0, 1).")
        if self.momentum_steps < 1 or self.momentum_step_period < 1:
            raise UserError(f"--momentum-steps {self.momentum_steps} --momentum-step-period {self.momentum_step_period}: expected both to "
                            "be positive.")
        if self.l2_penalty < 0.0:
            raise UserError(f"--rbm-l2penalty {self.l2_penalty:g} is negative.")


class Cd(Optimizer):
    """The optimiser of RBMs.

    `frames`: those that updates were made of, on which the momentum depends; `rate_factor`: what the guard left of the rate.
    """

    learner: ContrastiveDivergence
    options: CdOptions

    def __init__(self, learner: ContrastiveDivergence, options: CdOptions) -> None:
        super().__init__(learner, options)
        self.frames = 0
        self.rate_factor = self.velocity.new_ones(())
        self._momentum = self.velocity.new_zeros(())
        self._host_momentum = 0.0
        self._gradient = torch.zeros_like(self.velocity)

    @property
    def additive(self) -> bool:
        """False: the guard rescales a model."""
        return False

    def momentum(self) -> float:
        """The momentum of the next update."""
        o = self.options
        done = min(self.frames // o.momentum_step_period, o.momentum_steps) / o.momentum_steps
        return o.momentum + (o.momentum_max - o.momentum) * done

    def local_step(self, minibatch: Minibatch, learn_rate: float, totals: Tensor) -> None:
        self._set_momentum()
        super().local_step(minibatch, learn_rate, totals)
        self.frames += len(minibatch)

    def apply(self, gradient: Tensor, learn_rate: float, frames: int) -> None:
        self._set_momentum()
        super().apply(gradient, learn_rate, frames)
        self.frames += frames

    def _apply(self, gradient: Tensor) -> None:
        self._update(gradient, self._frames)

    def _step(self, minibatch: Minibatch, totals: Tensor) -> None:
        self.learner.gradient(minibatch, self._gradient, 0.0, totals)
        self._update(self._gradient, self._frames)

    def _set_momentum(self) -> None:
        momentum = self.momentum()
        if momentum != self._host_momentum:
            self._momentum.fill_(momentum)
            self._host_momentum = momentum

    def _update(self, gradient: Tensor, frames: Factor) -> None:
        """Make the update of this file's head; the momentum is part of it, and the gradient comes without."""
        rbm = self.learner.model
        rate = self.rate * self.rate_factor * (1.0 - self._momentum)
        scale = None
        if rbm.visible_units == "gauss":
            scale = self._guard(rbm.views(gradient)[0][3], frames * rbm.input_dim)
        (self._compiled_move if gradient.is_cpu else self._move)(gradient[: rbm.num_params], rate, frames, scale)

    def _compiled_move(self, gradient: Tensor, rate: Tensor, frames: Factor, scale: Tensor | None) -> None:
        """Make the update on the host, in a compiled loop; `scale` is the guard's."""
        rbm = self.learner.model
        params, velocity = rbm.params[: rbm.num_params].numpy(), self.velocity[: rbm.num_params].numpy()
        number = params.dtype.type
        _step(params, velocity, gradient.numpy(), rbm.weight.numel(), number(self._momentum.numpy()), number((rate / frames).numpy()),
              number(self.options.l2_penalty), number(rate.numpy()), number(1.0 if scale is None else scale.numpy()))

    def _move(self, gradient: Tensor, rate: Tensor, frames: Factor, scale: Tensor | None) -> None:
        """Make the update on any device, by torch's operations."""
        rbm = self.learner.model
        velocity, params = self.velocity[: rbm.num_params], rbm.params[: rbm.num_params]
        velocity.mul_(self._momentum).addcmul_(gradient, rate / frames)
        if self.options.l2_penalty > 0.0:
            rbm.views(self.velocity)[0][0].addcmul_(rbm.weight, rate, value=self.options.l2_penalty)
        if scale is not None:
            velocity.masked_fill_(scale != 1.0, 0.0)
            params.mul_(scale)
        params.sub_(velocity)

    def _guard(self, moments: Tensor, values: Factor) -> Tensor:
        """Apply the guard to the rate; returns what parameters are to be multiplied by, one where it finds nothing.

        `moments`: sum and sum of squares of `values` values of the data, then of the reconstruction.
        """
        mean, square = (moments.view(2, 2) / values).unbind(1)
        data, reconstruction = root_((square - mean.square()).clamp_min_(0.0)).unbind()
        blown = reconstruction > GUARD_RATIO * data
        self.rate_factor.mul_(1.0 - (1.0 - GUARD_SLOWDOWN) * blown)
        return torch.where(blown, data / reconstruction, torch.ones_like(data))

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "frames": self.frames, "rate_factor": self.rate_factor}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.frames = state["frames"]
        self.rate_factor.copy_(state["rate_factor"])
