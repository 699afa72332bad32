"""Synchronous SGD: every minibatch's gradient is summed over all workers, and all workers take the same step.

N workers with minibatches of n frames equal one worker with minibatches of N n frames. Gradients are sums over frames (nnet1's convention),
so the learning rate, which multiplies a frame's gradient, stays as it is. With NG-SGD each worker preconditions its own gradient with its
own Fisher matrices.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pykaldist.parallel.fabric.interface import Fabric
from pykaldist.parallel.fabric.worker import Worker
from pykaldist.parallel.strategies.base.strategy import Strategy


@dataclass
class SsgdOptions:
    """ssgd."""


class Ssgd(Strategy):
    """Synchronous SGD. `gradient`: a buffer that stays in place, as recorded steps need."""

    lr_scale = "none"
    ships_gradients = True
    gradient: torch.Tensor | None = None

    async def epoch(self, worker: Worker, fabric: Fabric) -> None:
        gradient = self.gradient = torch.zeros_like(worker.params) if self.gradient is None else self.gradient
        async for round in self.rounds(worker, fabric, 1):
            frames = await self.gradient_of(worker, fabric, round, gradient)
            total = await fabric.sum(gradient, frames)
            await fabric.compute(worker.apply, gradient, int(total), round.fraction)
            worker.synced()
