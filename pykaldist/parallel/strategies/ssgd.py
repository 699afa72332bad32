"""Synchronous SGD: every minibatch's gradient is summed over all workers, and all workers take the same step.

N workers with minibatches of n frames equal one worker with minibatches of N n frames. Gradients are sums over frames (nnet1's convention),
so the learning rate, which multiplies a frame's gradient, stays as it is. With NG-SGD each worker preconditions its own gradient with its
own Fisher matrices.

With `overlap` the gradient is exchanged in parts of some layers each, the last layers' first, which are made first: while one part is
summed, the backward pass goes on through the layers below. The sums are the same; where a fabric adds up processes in an order that depends
on a value's place in what is exchanged, they may differ in their last bits. Of several workers in a process, which take turns, the last
one's backward pass is overlapped. A small network is one part, and is exchanged as without.

With `exchange_dtype bf16` gradients are sent in bfloat16 (`base/rounding.py`).
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from pykaldist.nnet.cuda_graphs import Parts
from pykaldist.options import option
from pykaldist.parallel.fabric.interface import Fabric
from pykaldist.parallel.fabric.worker import Worker
from pykaldist.parallel.strategies.base.rounding import ExchangeOptions, Remainders, rounded_sum, with_remainders
from pykaldist.parallel.strategies.base.strategy import Round, Strategy

PART = 25 << 18  # values of a part, at least: as many as the buckets of PyTorch's DistributedDataParallel have, 25 MiB


@dataclass
class SsgdOptions(ExchangeOptions):
    """ssgd."""

    overlap: bool = option(False, "exchange the gradients of upper layers while those of the layers below are computed")


class Ssgd(Strategy):
    """Synchronous SGD. `gradient`: a buffer that stays in place, as recorded steps need. `remainders`: of each part's exchange in bfloat16.
    """

    options: SsgdOptions
    lr_scale = "none"
    ships_gradients = True
    remembers = ("remainders",)
    gradient: torch.Tensor | None = None

    def __init__(self, options: SsgdOptions | None = None) -> None:
        super().__init__(options or SsgdOptions())
        self.rejected()

    def rejected(self) -> None:
        self.remainders: list[Remainders] | None = None

    async def epoch(self, worker: Worker, fabric: Fabric) -> None:
        gradient = self.gradient = torch.zeros_like(worker.params) if self.gradient is None else self.gradient
        self.to(gradient.device)
        whole = not self.options.overlap or fabric.size == 1
        slices = [slice(0, len(gradient))] if whole else worker.learner.model.parts(PART)
        async for round in self.rounds(worker, fabric, 1):
            rounded = self.options.in_bf16(fabric) and not round.last
            before = self.remainders or [None] * len(slices)
            if len(slices) > 1:
                total = await self._overlapped(worker, fabric, round, slices, before if rounded else None)
            elif rounded:
                frames = await self.gradient_of(worker, fabric, round, gradient)
                summed, left = await rounded_sum(fabric, gradient, before[0])
                gradient.copy_(summed)
                self.remainders = [left]
                total = await fabric.total(frames)
            else:
                frames = await self.gradient_of(worker, fabric, round, gradient)
                total = await fabric.sum(with_remainders(fabric, gradient, before[0]), frames)
            if not rounded:
                self.remainders = None
            await fabric.compute(worker.apply, gradient, int(total), round.fraction)
            worker.synced()

    async def _overlapped(self, worker: Worker, fabric: Fabric, round: Round, slices: list[slice],
                          rounded: list[Remainders] | None) -> float:
        """Compute the gradient of a round, and sum each part of it as soon as it is made. Returns the frames of all workers.

        `rounded`: what remains of each part's exchanges in bfloat16; None: this one is in full precision.
        """
        gradient = self.gradient
        assert gradient is not None
        before = self.remainders or [None] * len(slices)

        def nothing(parts: Parts | None = None) -> int:
            gradient.zero_()
            return 0

        def exchange(number: int) -> Coroutine[Any, Any, Any]:
            part = gradient[slices[number]]
            if rounded is not None:
                return rounded_sum(fabric, part, rounded[number], background=True)
            return fabric.sum(with_remainders(fabric, part, before[number]))

        work = partial(worker.gradient, gradient, round.fraction) if round.minibatches else nothing
        frames, tickets = await fabric.compute_parts(work, slices, exchange)
        total = await fabric.total(frames)
        answers = [await fabric.finish(ticket) for ticket in tickets]
        if rounded is not None:
            for part, (summed, _) in zip(slices, answers, strict=True):
                gradient[part].copy_(summed)
            self.remainders = [left for _, left in answers]
        return total
