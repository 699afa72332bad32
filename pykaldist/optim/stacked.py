"""SGD of stacked models (nnet/stacked.py): the steps of several workers, each with its own minibatch, rate and momentum, in one.

Parameters, velocity and gradients are (models, 1, P), so that rates (models, 1, 1) multiply them. Where all rates are equal, and on a CPU,
the rate is a number as it is for one model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from pykaldist.frames.device_frames import to_device
from pykaldist.frames.sampler import Minibatch
from pykaldist.nnet.learner import Learner
from pykaldist.optim.optimizer import Optimizer
from pykaldist.optim.sgd import Sgd


class StackedSgd(Sgd):
    """The steps of `optimizers`, without bounds on change, on a learner whose model is theirs, stacked.

    `gradients`: `gradient_of_each` and `apply_each` will be asked for.
    """

    def __init__(self, learner: Learner, optimizers: Sequence[Optimizer], gradients: bool) -> None:
        super().__init__(learner, optimizers[0].options)
        if optimizers[0].start is not None:
            self.pull_to(optimizers[0].start)
        assert not self._bounded
        if isinstance(self.rate, Tensor):
            self.rate = self.model.params.new_zeros(len(optimizers), 1, 1)
            self._minus_rate = -self.rate
        self._gradients = torch.zeros_like(self.velocity) if gradients else None
        self._adopted: list[Optimizer | None] = [None] * len(optimizers)
        self.adopt(optimizers)

    def adopt(self, optimizers: Sequence[Optimizer]) -> None:
        """Take the velocity of each optimiser that is not yet known, which from now on is a row of this one's."""
        for k, (optimizer, row) in enumerate(zip(optimizers, self.velocity[:, 0].unbind(), strict=True)):
            if self._adopted[k] is not optimizer:
                self._adopted[k], optimizer.velocity = optimizer, row.copy_(optimizer.velocity)

    def set_rates(self, learn_rates: Sequence[float]) -> None:
        """Set the rate of each model, for what follows."""
        if len(set(learn_rates)) == 1:
            self.set_rate(learn_rates[0])
            return
        self._host_rate = math.nan
        rates = to_device(torch.tensor(learn_rates, dtype=self.velocity.dtype).view(-1, 1, 1), self.velocity.device)
        if rates.is_cpu:
            self.rate, self._minus_rate = rates, -rates
        else:
            assert isinstance(self.rate, Tensor) and isinstance(self._minus_rate, Tensor)
            self.rate.copy_(rates)
            torch.neg(self.rate, out=self._minus_rate)

    def step_each(self, minibatch: Minibatch, totals: Tensor) -> None:
        """Make the gradient of each model's minibatch, one behind the other in `minibatch`, and update each.

        Adds to `totals` (models, number of totals).
        """
        self._set_frames(len(minibatch))
        self._with_minibatch(minibatch, (totals,), lambda: self._step(minibatch, totals))

    def gradient_of_each(self, minibatch: Minibatch, grads: Sequence[Tensor], totals: Tensor) -> None:
        """Make the gradient of each model's minibatch in a flat buffer of its own, as `gradient` does for one."""
        stacked = self._gradients
        assert stacked is not None

        def work() -> None:
            self._gradient_alone(minibatch, stacked, totals)
            for own, row in zip(grads, stacked[:, 0].unbind(), strict=True):
                own.copy_(row)

        self._with_minibatch(minibatch, (totals, *grads), work)

    def apply_each(self, grads: Sequence[Tensor], frames: int) -> None:
        """Update each model by a flat gradient of its own, summed over `frames` frames."""
        stacked = self._gradients
        assert stacked is not None

        def work() -> None:
            torch.stack(list(grads), out=stacked[:, 0])
            self._apply(stacked)

        self._set_frames(frames)
        self.recorded(tuple(own.data_ptr() for own in grads), work)
