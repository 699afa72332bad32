"""Synchronous SGD: every minibatch's gradient is summed over all workers, and all workers take the same step.

N workers with minibatches of n frames equal one worker with minibatches of N n frames. Gradients are sums over frames (nnet1's convention),
so the learning rate, which multiplies a frame's gradient, stays as it is. With NG-SGD each worker preconditions its own gradient with its
own Fisher matrices.

With `exchange_dtype bf16` gradients are sent in bfloat16 (`base/rounding.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pykaldist.parallel.fabric.interface import Fabric
from pykaldist.parallel.fabric.worker import Worker
from pykaldist.parallel.strategies.base.rounding import ExchangeOptions, Remainders, rounded_sum, with_remainders
from pykaldist.parallel.strategies.base.strategy import Strategy


@dataclass
class SsgdOptions(ExchangeOptions):
    """ssgd."""


class Ssgd(Strategy):
    """Synchronous SGD. `gradient`: a buffer that stays in place, as recorded steps need. `remainders`: of exchanges in bfloat16."""

    options: SsgdOptions
    lr_scale = "none"
    ships_gradients = True
    remembers = ("remainders",)
    gradient: torch.Tensor | None = None

    def __init__(self, options: SsgdOptions | None = None) -> None:
        super().__init__(options or SsgdOptions())
        self.rejected()

    def rejected(self) -> None:
        self.remainders: Remainders = None

    async def epoch(self, worker: Worker, fabric: Fabric) -> None:
        gradient = self.gradient = torch.zeros_like(worker.params) if self.gradient is None else self.gradient
        self.to(gradient.device)
        async for round in self.rounds(worker, fabric, 1):
            frames = await self.gradient_of(worker, fabric, round, gradient)
            if self.options.in_bf16(fabric) and not round.last:
                summed, self.remainders = await rounded_sum(fabric, gradient, self.remainders)
                gradient.copy_(summed)
                total = await fabric.total(frames)
            else:
                total = await fabric.sum(with_remainders(fabric, gradient, self.remainders), frames)
                self.remainders = None
            await fabric.compute(worker.apply, gradient, int(total), round.fraction)
            worker.synced()
