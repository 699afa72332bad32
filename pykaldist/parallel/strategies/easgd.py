"""Elastic averaging SGD: an elastic force ties each worker's model to a centre, and the centre follows the workers' mean.

Zhang, Choromanska & LeCun (2015), arXiv:1412.6651, equations 3 and 4. With the workers' models x_i and the centre c, every tau minibatches
    d_i = alpha (x_i - c);    x_i <- x_i - lr g(x_i) - d_i;    c <- c + sum_i d_i = (1 - beta) c + beta mean_i x_i,    beta = N alpha.
Only gradients move the sum c + sum_i x_i. With a smaller alpha and a longer period workers go farther from c. An exchange multiplies the
distance of mean and centre by 1 - alpha - beta, which must be above -1. d_i is of the model before a period's first minibatch: the mean is
made while that is trained on. With --asynchronous true (algorithm 1) c lies beside worker 0: a worker sends x_i, trains meanwhile, gets d_i
back, and waits for nobody else. EAMSGD (--local-nesterov delta) has Nesterov's momentum in each worker: v <- delta v - lr g(x + delta v), x
<- x + v - d; a step starts from x + delta v; v is its way from x. At an epoch's end all exchange once more; c is the epoch's model. Each
goes on from its own model; after a rejected epoch from the model before, without velocity. The rate is one worker's times N, as in `ma`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch

from pykaldist.errors import UserError
from pykaldist.options import option
from pykaldist.parallel.fabric.interface import Fabric
from pykaldist.parallel.fabric.worker import Worker
from pykaldist.parallel.strategies.base.strategy import PeriodOptions, Strategy


@dataclass
class EasgdOptions(PeriodOptions):
    """easgd."""

    moving_rate: float = option(0.9, "beta: how far the centre moves to the workers' mean in an exchange of all")
    elastic_rate: float | None = option(None, "alpha: how far a worker moves to the centre (beta / N)")
    local_nesterov: float = option(0.0, "delta: Nesterov's momentum of each worker (EAMSGD)")
    asynchronous: bool = option(False, "the centre is beside worker 0, and nobody waits for others; else all exchange together")

    def rates(self, workers: int) -> tuple[float, float]:  # alpha and beta
        alpha = self.moving_rate / workers if self.elastic_rate is None else self.elastic_rate
        if not (0.0 <= alpha < 1.0 and alpha * workers < 2.0 - alpha and 0.0 <= self.local_nesterov < 1.0):
            raise UserError(f"--elastic-rate {alpha:g} --moving-rate {alpha * workers:g}: expected the first in [0, 1), a sum below 2.")
        return alpha, alpha * workers


class Easgd(Strategy):
    """`own`: the worker's model between epochs. `steps` since it sent it; `moves` of the centre, and the number `seen` when it sent."""

    options: EasgdOptions
    lr_scale, one_model = "linear", False
    remembers = ("centre", "own", "velocity", "steps", "moves", "seen")

    def __init__(self, options: EasgdOptions) -> None:
        super().__init__(options)
        self.independent = self.fault_tolerant = self.asynchronous = options.asynchronous
        self.essential = range(int(options.asynchronous))
        self.rejected()

    def rejected(self) -> None:
        self.centre = self.own = self.velocity = cast(Any, None)  # tensors from the first epoch on
        self.steps = self.moves = self.seen = 0

    def contract(self, workers: int, minibatch_size: int) -> list[tuple[str, str]]:
        force = "alpha {:.4g}, moving rate beta {:.4g}".format(*self.options.rates(workers))
        return [*super().contract(workers, minibatch_size), ("elastic force", force)]

    async def epoch(self, worker: Worker, fabric: Fabric) -> None:
        params = worker.params
        if fabric.size == 1:
            return await self.by_itself(worker, fabric)
        self.to(params.device)
        params.copy_(params if self.own is None else self.own)
        self.own, self.centre = None, params.clone() if self.centre is None else self.centre
        self.velocity = torch.zeros_like(params) if self.velocity is None else self.velocity
        await (self._freely if self.independent else self._in_step)(worker, fabric, *self.options.rates(fabric.size))
        self.own = params.clone()
        await fabric.average(params, 1.0, measure=True)  # measures their distance
        await fabric.average(self.centre, float(fabric.rank == 0))
        params.copy_(self.centre)

    async def _in_step(self, worker: Worker, fabric: Fabric, alpha: float, beta: float) -> None:
        def pull() -> None:
            worker.params.sub_(before.sub_(self.centre).mul_(alpha))
            self.centre.lerp_(mean, beta)
        step: Callable[[], None] = partial(self._step, worker) if self.options.local_nesterov else worker.step
        async for round in self.rounds(worker, fabric, self.options.minibatches(worker.sampler.minibatch_size)):
            for count in (round.minibatches, 0)[: 1 + round.last]:
                before = worker.params.clone()
                ticket = await fabric.begin(fabric.mean(before, 1.0))
                for i in range(max(count, 1)):
                    await fabric.compute(step if count else lambda: None)
                    if i == 0:
                        mean = await fabric.finish(ticket)
                        await fabric.work("the elastic force", pull, before, 11)

    async def _freely(self, worker: Worker, fabric: Fabric, alpha: float, beta: float) -> None:
        def move(sender: int, model: Any, _: float) -> tuple[torch.Tensor, float]:
            self.centre.add_(model.sub_(self.centre).mul_(alpha))
            self.moves += 1
            return model, self.moves
        fabric.serve(move)  # only worker 0 is called
        fraction: float | None = 0.0
        while fraction is not None or self.steps or await fabric.more(True):
            fabric.mark()
            fraction = await fabric.take(True, self.steps)
            due = self.steps >= (1 if fraction is None else max(self.options.minibatches(worker.sampler.minibatch_size), 1))
            ticket = await fabric.call_in_turn(0, worker.params.clone(), 0.0) if due else 0
            if fraction is not None:
                await fabric.compute(self._step, worker, fraction)
            if due:
                force, moves = await fabric.answer(ticket)
                worker.params.sub_(cast(torch.Tensor, force))
                fabric.staleness[int(moves) - 1 - self.seen] += 1
                self.seen = int(moves)
            self.steps = self.steps * (not due) + (fraction is not None)

    def _step(self, worker: Worker, fraction: float | None = None) -> None:
        before = worker.params.clone() if self.options.local_nesterov else None
        if before is not None:
            worker.params.add_(self.velocity, alpha=self.options.local_nesterov)
        worker.step(fraction)
        if before is not None:
            torch.sub(worker.params, before, out=self.velocity)
            for part in worker.statistics:
                self.velocity[part] = 0.0
