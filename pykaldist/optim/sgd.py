"""Stochastic gradient descent with momentum, in nnet1's convention.

For a minibatch of n frames with summed gradient g:
    v <- m v + g;   w <- w - lr v;   weights also  w <- w (1 - lr l2 n)      (biases are not penalised)
The learning rate multiplies a sum over frames, so that it is n times smaller than one for means.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from pykaldist.frames.sampler import Minibatch
from pykaldist.optim.optimizer import Optimizer, OptimizerOptions


@dataclass
class SgdOptions(OptimizerOptions):
    """SGD."""


class Sgd(Optimizer):
    """The momentum is applied inside the gradient's own matrix products."""

    def gradient(self, minibatch: Minibatch, grads: Tensor, totals: Tensor) -> None:
        self.learner.gradient(minibatch, grads, 0.0, totals)

    def _step(self, minibatch: Minibatch, totals: Tensor) -> None:
        self.learner.gradient(minibatch, self.velocity, self.options.momentum, totals)
        self._update(len(minibatch))
