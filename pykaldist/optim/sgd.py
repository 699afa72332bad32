"""Stochastic gradient descent with momentum, in nnet1's convention.

For a minibatch of n frames with summed gradient g:
    v <- m v + g;   w <- w - lr v;   weights also  w <- w (1 - lr l2 n)      (biases are not penalised)
The learning rate multiplies a sum over frames, so that it is n times smaller than one for means.
"""

from __future__ import annotations

from dataclasses import dataclass

from pykaldist.optim.optimizer import Optimizer, OptimizerOptions


@dataclass
class SgdOptions(OptimizerOptions):
    """The options of SGD."""


class Sgd(Optimizer):
    """The optimiser SGD, which takes the gradient as it is. The momentum is applied inside the gradient's own matrix products."""

    name = "sgd"
    fused_step = True
