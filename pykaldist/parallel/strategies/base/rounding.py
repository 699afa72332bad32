"""Exchanges in bfloat16, with error feedback: what rounding loses of a worker's contribution is added to its next one.

Each worker k contributes x_k to a sum over all workers. It sends this in half the bytes,
    sent_k = Q(x_k + r_k),      r_k <- x_k + r_k - sent_k,
where Q rounds to bfloat16: 8 significant bits, float32's range. Each worker owns an equal part of the values. An owner adds up what all
have sent, in the order of their ranks and in the precision of the parameters. It sends the sum to all, with a remainder q of its own:
    total = Q(sum_k sent_k + q),      q <- sum_k sent_k + q - total.
So nothing is lost, only delayed, as in 1-bit SGD (Seide et al., 2014): the sum of all totals, and of what remains, is the sum of all
contributions. All workers get the same total, the same for any number of processes and any fabric, bit for bit.

Many values are exchanged in buckets, of which workers own equal parts each. While one bucket is exchanged, the next is rounded.

A model in bfloat16 would be a coarse one. So models are not sent, but their moves: the differences from a model that all workers have. An
epoch's last exchange is in full precision, and has what remains added to it: an epoch begins without remainders.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pykaldist.options import option
from pykaldist.parallel.fabric.interface import Fabric

BUCKET = 25 << 18  # values of a bucket: as many as NCCL's sums in full precision have (`fabric/torch_distributed.py`)
UNDER_WAY = 2  # buckets that are exchanged at a time
PASSES = 9, 7  # passes over the values in memory, counted: by a worker's rounding; by an owner's sum, and by the writing of all sums
WHAT = "rounding to bfloat16"


@dataclass
class ExchangeOptions:
    """How values are sent."""

    exchange_dtype: str = option("float32", "how values are sent: as they are, or with half the bytes, rounded to bfloat16 with error "
                                            "feedback", ("float32", "bf16"))

    def inelastic(self) -> str:
        """Why a job with these exchanges cannot be elastic, in words; empty where it can."""
        return "" if self.exchange_dtype == "float32" else \
            "--exchange-dtype bf16 leaves with each worker what rounding has lost, and it would be lost with the worker"

    def in_bf16(self, fabric: Fabric) -> bool:
        """True where this worker's exchanges are in bfloat16."""
        return self.exchange_dtype == "bf16" and fabric.size > 1


# What remains of the exchanges so far, of each bucket: (r_k, as long as the bucket; q, as long as the worker's part of it). None: nothing.
Remainders = list[tuple[Tensor, Tensor]] | None


def _own_part(values: Tensor, fabric: Fabric) -> Tensor:
    """The part of a bucket's values that this worker owns."""
    return values.tensor_split(fabric.size)[fabric.rank]


async def _at_once(what: str, work: Callable[[], Any], over: Tensor, passes: float) -> Any:
    """Do the work of an exchange in the background, which is not the worker's own time."""
    return work()


async def rounded_sum(fabric: Fabric, values: Tensor, remainders: Remainders, background: bool = False) -> tuple[Tensor, Remainders]:
    """Sum values over all workers, in bfloat16. Returns (the sum, what remains now); values and remainders stay as they are.

    `background`: this is an exchange of `Fabric.begin`.
    """
    buckets = values.split(BUCKET)
    before: list[Any] = [(0.0, 0.0)] * len(buckets) if remainders is None else list(remainders)
    work: Callable[..., Coroutine[Any, Any, Any]] = _at_once if background else fabric.work
    apart = not background and len(buckets) > 1  # the exchanges are in the background of the rounding
    under_way: deque[tuple[Any, Tensor, Tensor]] = deque()
    totals, left = [], []

    async def finish_one() -> None:
        exchanged, _, own_left = under_way.popleft()
        total, part_left = await fabric.finish(exchanged) if apart else exchanged
        totals.append(total)
        left.append((own_left, part_left))

    for bucket, (own_before, part_before) in zip(buckets, before, strict=True):
        sent, own_left = await work(WHAT, partial(_rounded, bucket, own_before), bucket, PASSES[0])
        exchange = _exchanged(fabric, bucket, sent, part_before, _at_once if apart else work)
        under_way.append((await fabric.begin(exchange) if apart else await exchange, sent, own_left))
        if len(under_way) == UNDER_WAY or not apart:
            await finish_one()
    while under_way:
        await finish_one()
    return totals[0] if len(totals) == 1 else torch.cat(totals), left


def _rounded(values: Tensor, before: Tensor | float) -> tuple[Tensor, Tensor]:
    """(values and what remained before, rounded; what remains now)."""
    left = values + before
    sent = left.to(torch.bfloat16)
    return sent, left.sub_(sent)


async def _exchanged(fabric: Fabric, bucket: Tensor, sent: Tensor, before: Tensor | float,
                     work: Callable[..., Coroutine[Any, Any, Any]]) -> tuple[Tensor, Tensor]:
    """Sum over all workers what each sends of its bucket: (the sum, what remains of this worker's part of it)."""
    parts = await fabric.scatter(list(sent.tensor_split(fabric.size)))

    def summed() -> tuple[Tensor, Tensor]:
        total = torch.zeros_like(parts[0], dtype=bucket.dtype).add_(before)
        for part in parts:
            total.add_(part)
        rounded = total.to(torch.bfloat16)
        return rounded, total.sub_(rounded)

    part, left = await work(WHAT, summed, bucket, PASSES[1])
    return torch.cat(await fabric.gather(part)).to(bucket.dtype), left


async def rounded_mean(fabric: Fabric, move: Tensor, weight: float, remainders: Remainders,
                       background: bool = False) -> tuple[Tensor, Remainders]:
    """The weighted mean of the workers' moves, exchanged like `rounded_sum`. A worker's contribution is its share of the mean."""
    total = await fabric.total(weight)
    return await rounded_sum(fabric, move * (weight / total if total else 0.0), remainders, background)


def with_remainders(fabric: Fabric, values: Tensor, remainders: Remainders) -> Tensor:
    """The values with what remains of this worker's contributions, and of the sums that it owns, added in place."""
    for bucket, (own, part) in zip(values.split(BUCKET), remainders, strict=True) if remainders is not None else ():
        bucket.add_(own)
        _own_part(bucket, fabric).add_(part)
    return values


async def average(fabric: Fabric, params: Tensor, common: Tensor, weight: float, remainders: Remainders, last: bool) -> Remainders:
    """Replace a worker's parameters by their weighted mean over all workers, and return what remains.

    `common` is a model that all workers have. `last`: the exchange is an epoch's last one, in full precision.
    """
    if not last:
        mean, remainders = await rounded_mean(fabric, params - common, weight, remainders)
        torch.add(common, mean, out=params)
        return remainders
    total = await fabric.total(weight)
    contribution = with_remainders(fabric, (params - common) * (weight / total if total else 0.0), remainders)
    torch.add(common, contribution, alpha=fabric.size, out=params)  # so that the mean over workers is the sum of contributions
    await fabric.average(params, 1.0, measure=True)
    return None
