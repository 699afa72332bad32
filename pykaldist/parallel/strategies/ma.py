"""Model averaging: every period the workers' models are replaced by their weighted mean.

Su, Chen & Xu (2015), section 3: every `average_period` minibatches
    w <- sum_k n_k w_k / sum_k n_k,
with n_k the frames that worker k has trained on since the last average. With a period of 1 and plain SGD this is gradient averaging. A
longer period means fewer exchanges, and models that differ more. The learning rate is that of one worker times N: the mean of N moves is as
long as one of them, and each worker makes only 1/N of the updates.

Instead of the all-reduce, workers can average in pairs (`reduce_type`). This costs less and mixes more slowly: w_k <- (w_k + w_j) / 2 with
    butterfly     j = k XOR 2^(t mod log2 N), N a power of two; log2 N rounds make a full average
    ring          w_k <- the mean of w_k and of the model of the worker before it
    hoppingring   the same with the worker that is t mod (N - 1) + 1 places before it
where t counts the exchanges of the run. These keep the mean over the workers. The last exchange of an epoch is an all-reduce of this mean,
so that an epoch ends with one model. Frames are not used as weights here: after some exchanges every model holds a part of what every
worker has learnt.

With `overlap`, training does not wait for the all-reduce. A mean that is begun at time t arrives at the end of the next period, t + 1, and
    w_k(t + 1) <- w_k(t + 1) + mean(t) - w_k(t),
which is the mean of time t and the worker's moves since then. With equal weights this keeps the mean over the workers. Only the worker's
distance from the mean is removed one period late. An epoch's last exchange does not overlap.

With `reduce_content all` the momentum is averaged with the model (all-reduce only).

With `exchange_dtype bf16` the workers send their moves from the last mean, in bfloat16 (`base/rounding.py`; all-reduce only).

With `initial_workers` not all workers train at first, but more and more of them over the run (`base/growth.py`; all-reduce only).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.options import option
from pykaldist.parallel.fabric.interface import Fabric
from pykaldist.parallel.fabric.worker import Worker
from pykaldist.parallel.strategies.base.growth import iterations, take
from pykaldist.parallel.strategies.base.rounding import ExchangeOptions, Remainders, average, rounded_mean
from pykaldist.parallel.strategies.base.strategy import PeriodOptions, Round, Strategy

PIECE = 1 << 20  # values that are exchanged at a time; a worker also holds the other's values
REDUCE_TYPES = ("allreduce", "butterfly", "ring", "hoppingring")


@dataclass
class MaOptions(ExchangeOptions, PeriodOptions):
    """ma."""

    reduce_type: str = option("allreduce", "who averages with whom", REDUCE_TYPES)
    reduce_content: str = option("model", "what is averaged: the model, or all: the momentum too", ("model", "all"))
    overlap: bool = option(False, "train on while models are averaged: the mean arrives a period late")
    initial_workers: int = option(0, "workers that train at first; their number grows to all over the run; 0: all from the beginning")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.initial_workers < 0:
            raise UserError(f"--initial-workers {self.initial_workers} is negative.")
        if self.initial_workers and (self.overlap or self.reduce_type != "allreduce" or not (self.average_period or self.average_frames)):
            raise UserError(f"--initial-workers {self.initial_workers}: the number of workers grows from one average to the next of all "
                            "models, by --reduce-type allreduce without --overlap, with a period.")
        if self.overlap and (self.reduce_content == "all" or self.reduce_type != "allreduce"):
            raise UserError("--overlap true: only models are averaged meanwhile, by --reduce-type allreduce --reduce-content model.")
        if self.reduce_content == "all" and self.reduce_type != "allreduce":
            raise UserError(f"--reduce-content all --reduce-type {self.reduce_type}: momentum is averaged by allreduce only.")
        if self.exchange_dtype == "bf16" and (self.reduce_content == "all" or self.reduce_type != "allreduce"):
            raise UserError("--exchange-dtype bf16: only models are sent so, by --reduce-type allreduce --reduce-content model.")


def source(reduce_type: str, rank: int, size: int, exchange: int) -> tuple[int, int]:
    """(worker to send to, worker to receive from) in exchange number `exchange` of a pairwise pattern."""
    if reduce_type == "butterfly":
        peer = rank ^ (1 << exchange % (size.bit_length() - 1))
        return peer, peer
    hop = 1 if reduce_type == "ring" else exchange % (size - 1) + 1
    return (rank + hop) % size, (rank - hop) % size


class Ma(Strategy):
    """Model averaging. `exchanges` counts the exchanges of the run.

    `sent`: model, or move, and weight that were sent to the average under way. With bfloat16: `common`, the last mean, and `remainders`.
    `dealt`: the minibatches of this epoch that were dealt out, where the number of workers grows.
    """

    options: MaOptions
    lr_scale = "linear"
    remembers = ("exchanges", "sent", "common", "remainders", "dealt")

    def __init__(self, options: MaOptions) -> None:
        super().__init__(options)
        self.exchanges = self.dealt = 0
        self.ticket = 0  # ticket of the average under way
        self.rejected()

    def rejected(self) -> None:
        self.sent: tuple[Tensor, float] | None = None
        self.common: Tensor | None = None
        self.remainders: Remainders = None

    def inelastic(self) -> str:
        if self.options.reduce_type != "allreduce":
            return f"--reduce-type {self.options.reduce_type} averages pairs of workers, whose numbers change when one dies; use allreduce"
        if self.options.initial_workers:
            return f"--initial-workers {self.options.initial_workers} says in which round how many workers train"
        return self.options.inelastic()

    @property
    def keeps_mean(self) -> bool:
        """Whether exchanges keep the mean of any models; in bfloat16, of those that have moved from a common one."""
        return self.options.exchange_dtype == "float32"

    @property
    def reads_all(self) -> bool:
        """Whether workers train on parts of the data beside their own."""
        return self.options.initial_workers > 0

    def initial_share(self, workers: int) -> float:
        return min(1.0, (self.options.initial_workers or workers) / workers)

    def contract(self, workers: int, minibatch_size: int) -> list[tuple[str, str]]:
        grows = [("growth", f"{self.options.initial_workers} workers train at first, all {workers} at the end; the rate follows")]
        return super().contract(workers, minibatch_size) + grows * self.reads_all

    async def _rounds(self, worker: Worker, fabric: Fabric) -> AsyncIterator[Round]:
        """The rounds of an epoch: those of any strategy, or those of a number of workers that grows."""
        o, period = self.options, self.options.minibatches(worker.sampler.minibatch_size)
        if not o.initial_workers:
            async for round in self.rounds(worker, fabric, period):
                yield round
            return
        if o.initial_workers > fabric.size:
            raise UserError(f"--initial-workers {o.initial_workers} --ngpu {fabric.size}: more workers at first than in all.")
        for iteration in iterations(worker, o.initial_workers, fabric.size, period, self.dealt):
            number = take(worker, fabric.rank, iteration, fabric.size)
            self.dealt = 0 if iteration.last else iteration.end
            yield Round(number, iteration.begin / iteration.total, iteration.last)
            if not iteration.last:
                await fabric.safe_point()

    async def epoch(self, worker: Worker, fabric: Fabric) -> None:
        o, params = self.options, worker.params
        if o.reduce_type == "butterfly" and fabric.size & (fabric.size - 1):
            raise UserError(f"--reduce-type butterfly needs a power of two of workers, found {fabric.size}; use hoppingring.")
        self.to(params.device)
        if o.in_bf16(fabric) and self.common is None:
            self.common = params.clone()
        if self.sent is not None:  # an average was under way when the run was stopped
            self.ticket = await self._begin(fabric, *self.sent)
        # Whether the workers are one model before a round, of which all moves: statistics of the data would hide how the rest does.
        alike = fabric.measures_updates and o.reduce_type == "allreduce" and not o.overlap and self.common is None and \
            not worker.statistics
        async for round in self._rounds(worker, fabric):
            since = params.clone() if alike and round.last and fabric.size > 1 else None
            for _ in range(round.minibatches):
                await fabric.compute(worker.step)
            if self.sent is not None:
                params.add_(await self._finish(fabric)).sub_(self.sent[0])
            if o.overlap and not round.last and fabric.size > 1:
                self.sent = torch.empty_like(params) if self.sent is None else self.sent[0], worker.frames_since_sync
                self.sent[0].copy_(params)
                if self.common is not None:
                    self.sent[0].sub_(self.common)
                self.ticket = await self._begin(fabric, *self.sent)
            elif o.reduce_type == "allreduce" or round.last or fabric.size == 1:
                self.sent = None
                weight = worker.frames_since_sync if o.reduce_type == "allreduce" else 1.0
                if self.common is None:
                    await fabric.average(params, weight, round.last, since)
                else:
                    self.remainders = await average(fabric, params, self.common, weight, self.remainders, round.last)
                    self.common.copy_(params)
                if o.reduce_content == "all":
                    await fabric.average(worker.optimizer.velocity, weight)
            else:
                to, whence = source(o.reduce_type, fabric.rank, fabric.size, self.exchanges)
                for piece in params.split(PIECE):
                    piece.add_(await fabric.exchange(piece, to, whence)).mul_(0.5)
            self.exchanges += 1
            worker.synced()
        self.common = None

    async def _begin(self, fabric: Fabric, sent: Tensor, weight: float) -> int:
        """Begin an average in the background. Returns the ticket."""
        return await fabric.begin(fabric.mean(sent, weight) if self.common is None else
                                  rounded_mean(fabric, sent, weight, self.remainders, background=True))

    async def _finish(self, fabric: Fabric) -> Tensor:
        """Wait for the mean of what was sent."""
        answer = await fabric.finish(self.ticket)
        if self.common is None:
            return answer
        mean, self.remainders = answer
        self.common.add_(mean)
        return mean

    def cycle(self, workers: int, minibatch_size: int) -> int:
        patterns = {"butterfly": workers.bit_length() - 1, "hoppingring": workers - 1}
        return super().cycle(workers, minibatch_size) * max(1, patterns.get(self.options.reduce_type, 1))
