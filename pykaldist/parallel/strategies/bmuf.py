"""BMUF, blockwise model-update filtering: model averaging with momentum between the averages.

Chen & Huo (2016). Between two synchronisations each worker trains on its split of a block by SGD, from the common model W_g(t-1). Then
    Wbar(t)  = weighted mean of the workers' models
    G(t)     = Wbar(t) - W_g(t-1)
    Delta(t) = eta Delta(t-1) + zeta G(t)
    W(t)     = W(t-1) + Delta(t)
    classical:  W_g(t) = W(t)              Nesterov:  W_g(t) = W(t) + eta Delta(t)
eta is the block momentum, zeta the block learning rate. (Nesterov's look-ahead is made at the beginning of a block, so that W is validated
and saved.) eta = 0, zeta = 1 is model averaging.

Gain. If every block moves the workers by the same m, Delta tends to zeta m / (1 - eta) a block. One worker on all of the data would have
made N such moves in that time. So C = zeta / (N (1 - eta)) is the step relative to that of serial training. If eta is not given, it follows
from the wanted C = `block_gain`: eta = 1 - zeta / (N C), 0.94 for 16 workers and C = 1. The worker's learning rate is then that of serial
training.

The filter remembers 1 / (1 - eta) blocks, and the workers' own momentum 1 / (1 - m) minibatches. Where a block is not much longer than
that, these are two momentum loops in series, which can diverge. `local_momentum` says what happens to the workers' momentum at the end of a
block: keep, reset to zero (the default), or average.

SlowMo (Wang et al., 2020) and DiLoCo (Douillard et al., 2023; in streaming form, `diloco`) are the same filter with other symbols. Their
outer optimiser is SGD with momentum beta and learning rate alpha on the pseudo-gradient W_g(t-1) - Wbar(t): eta = beta, zeta = alpha,
classical for SlowMo (whose pseudo-gradient is divided by the local rate) and Nesterov for DiLoCo.

With `exchange_dtype bf16` the workers send their moves from W_g(t-1) in bfloat16 (`base/rounding.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.options import option
from pykaldist.parallel.fabric.interface import Fabric
from pykaldist.parallel.fabric.worker import Worker
from pykaldist.parallel.strategies.base.rounding import ExchangeOptions, Remainders, average
from pykaldist.parallel.strategies.base.strategy import PeriodOptions, Strategy

PASSES = 7, 12  # passes over a model in memory: by the look-ahead, and by the rest of the filter


@dataclass
class BmufOptions(ExchangeOptions, PeriodOptions):
    """bmuf."""

    block_momentum: float | None = option(None, "block momentum eta (from --block-gain)")
    block_learning_rate: float = option(1.0, "block learning rate zeta")
    block_gain: float | None = option(None, "C = zeta / (N (1 - eta)): the step in the steady state over that of serial training; gives "
                                            "eta (1)")
    nesterov: bool = option(True, "Nesterov's block momentum; false: classical")
    local_momentum: str = option("reset", "the workers' own momentum at a block's end", ("keep", "reset", "average"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.block_momentum is not None and not 0.0 <= self.block_momentum < 1.0:
            raise UserError(f"--block-momentum {self.block_momentum:g} is outside [0, 1).")
        if self.block_momentum is not None and self.block_gain is not None:
            raise UserError("--block-momentum and --block-gain exclude each other: either gives the other.")
        if self.exchange_dtype == "bf16" and self.local_momentum == "average":
            raise UserError("--exchange-dtype bf16 --local-momentum average: only models are sent so; use reset or keep.")
        for name in ("block_learning_rate", "block_gain"):
            if getattr(self, name) is not None and getattr(self, name) <= 0.0:
                raise UserError(f"--{name.replace('_', '-')} {getattr(self, name):g} is not positive.")

    def momentum(self, workers: int) -> float:
        """The block momentum eta, as given or from the gain."""
        if self.block_momentum is not None:
            return self.block_momentum
        return max(0.0, 1.0 - self.block_learning_rate / (workers * (self.block_gain or 1.0)))


class Bmuf(Strategy):
    """BMUF. `delta` is Delta(t). Between blocks the workers' models are W(t). `remainders`: of exchanges in bfloat16."""

    options: BmufOptions
    lr_scale = "none"
    remembers = ("delta", "remainders")
    advice = ("it was the more accurate one where a block was 22.5 minutes of speech a worker (Chen & Huo, 2016), and needs blocks that "
              "are longer than the workers' own momentum lasts")

    def __init__(self, options: BmufOptions) -> None:
        super().__init__(options)
        self.delta: Tensor | None = None
        self.remainders: Remainders = None

    def inelastic(self) -> str:
        return self.options.inelastic()

    async def epoch(self, worker: Worker, fabric: Fabric) -> None:
        o, eta, params = self.options, self.options.momentum(fabric.size), worker.params
        self.to(params.device)
        self.delta = torch.zeros_like(params) if self.delta is None else self.delta
        start = torch.empty_like(params)
        async for round in self.rounds(worker, fabric, o.minibatches(worker.sampler.minibatch_size)):
            await fabric.work("the filter", lambda: self._look_ahead(worker, start, eta), params, PASSES[0])
            for _ in range(round.minibatches):
                await fabric.compute(worker.step)
            weight = worker.frames_since_sync
            if o.in_bf16(fabric):
                self.remainders = await average(fabric, params, start, weight, self.remainders, round.last)
            else:
                await fabric.average(params, weight, round.last, start if fabric.measures_updates and not worker.statistics else None)
            await fabric.work("the filter", lambda: self._filter(worker, start), params, PASSES[1])
            if o.local_momentum == "average":
                await fabric.average(worker.optimizer.velocity, weight)
            worker.synced()

    def _look_ahead(self, worker: Worker, start: Tensor, eta: float) -> None:
        """Set the worker to the model from which a block starts, and copy it to `start`."""
        assert self.delta is not None
        self.delta.mul_(eta)  # eta Delta(t-1)
        for part in worker.statistics:  # statistics of the data are averaged, without momentum
            self.delta[part] = 0.0
        if self.options.nesterov:
            worker.params.add_(self.delta)
        start.copy_(worker.params)

    def _filter(self, worker: Worker, start: Tensor) -> None:
        """Make W(t) from the mean of the workers' models."""
        assert self.delta is not None
        o, params = self.options, worker.params
        move = params.sub_(start).mul_(o.block_learning_rate)
        self.delta.add_(move)
        params.add_(start) if o.nesterov else torch.add(start, self.delta, out=params)
        if o.local_momentum == "reset":
            worker.optimizer.velocity.zero_()

    def contract(self, workers: int, minibatch_size: int) -> list[tuple[str, str]]:
        o, eta = self.options, self.options.momentum(workers)
        gain = o.block_learning_rate / (workers * (1.0 - eta))
        return [*super().contract(workers, minibatch_size),
                ("block momentum", f"{eta:.4g}, block learning rate {o.block_learning_rate:g}: gain C = {gain:.3g}")]

    def remedies(self) -> list[str]:
        o = self.options
        name, was = ("gain", o.block_gain or 1.0) if o.block_momentum is None else ("momentum", o.block_momentum)
        return [*super().remedies(), f"lower --block-{name} (was {was:g})"]

    def rejected(self) -> None:
        """Forget Delta: the filter starts again from the model that training went back to."""
        self.delta = None
        self.remainders = None
