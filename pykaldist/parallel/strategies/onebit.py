"""1-bit SGD: synchronous SGD whose gradients travel as one bit a value, with error feedback.

Seide, Fu, Droppo, Li & Yu (2014), "1-bit stochastic gradient descent and its application to data-parallel distributed training of speech
DNNs". Of each minibatch's gradient G, with the residual R of the last time:
    sent = Q(G + R),      R <- G + R - sent.
Q keeps the sign of a value; of each column of a weight matrix (an input's weights), and of each bias vector, it also keeps two values, the
means of what was not negative and of what was, by which the signs are reconstructed. So nothing is lost, only late: the sum of all that was
sent, plus the residual, is the sum of all gradients.

The columns are shared out among the workers. Each worker sends everyone's columns to their owners, which add them up, quantise the sum with
a residual of their own, and send it round: one bit a value both ways, in place of 32. Parameters take the same step on all workers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pykaldist.parallel.fabric import Fabric
from pykaldist.parallel.strategy import Strategy
from pykaldist.parallel.worker import Worker

BITS = torch.tensor([1 << i for i in range(8)], dtype=torch.uint8)


@dataclass
class OnebitOptions:
    """onebit."""


def quantise(values: Tensor) -> tuple[Tensor, Tensor]:
    """(bits, levels) of (rows, columns): packed signs, uint8; (2, columns) means of a column's negative values, and of the rest."""
    positive = values >= 0
    counts = positive.sum(0).clamp_min(1), (~positive).sum(0).clamp_min(1)
    high = torch.where(positive, values, 0.0).sum(0) / counts[0]
    low = torch.where(positive, 0.0, values).sum(0) / counts[1]
    return pack_bits(positive.flatten()), torch.stack([low, high])


def reconstruct(bits: Tensor, levels: Tensor, rows: int) -> Tensor:
    """What `quantise` left of (rows, columns)."""
    columns = levels.shape[1]
    positive = unpack_bits(bits, rows * columns).view(rows, columns)
    return torch.where(positive, levels[1], levels[0])


def pack_bits(flags: Tensor) -> Tensor:
    """Booleans (n,) as bytes (ceil(n / 8),), the first in the lowest bit."""
    padded = torch.nn.functional.pad(flags.to(torch.uint8), (0, -len(flags) % 8)).view(-1, 8)
    return (padded * BITS.to(flags.device)).sum(1, dtype=torch.uint8)


def unpack_bits(packed: Tensor, count: int) -> Tensor:
    """Booleans (count,) from `pack_bits`."""
    return (packed[:, None] & BITS.to(packed.device)).bool().flatten()[:count]


class Columns:
    """The matrices of a flat buffer, and which of their columns belong to which worker."""

    def __init__(self, shapes: list[tuple[int, ...]], size: int) -> None:
        self.shapes = [(s[0], s[1]) if len(s) == 2 else (s[0], 1) for s in shapes]
        self.size = size

    def views(self, flat: Tensor) -> list[Tensor]:
        """Each parameter as (rows, columns)."""
        pieces = flat.split([rows * columns for rows, columns in self.shapes])
        return [piece.view(shape) for piece, shape in zip(pieces, self.shapes, strict=True)]

    def own(self, flat: Tensor, worker: int) -> list[Tensor]:
        """The columns of worker number `worker`; the columns of all workers are disjoint and cover everything."""
        cuts = []
        for i, view in enumerate(self.views(flat)):
            columns = view.shape[1]
            if columns == 1:  # a vector goes to one worker whole
                cuts.append(view if i % self.size == worker else view[:, :0])
            else:
                cuts.append(view[:, columns * worker // self.size : columns * (worker + 1) // self.size])
        return cuts

    def encode(self, parts: list[Tensor], residuals: list[Tensor]) -> Tensor:
        """Quantise each part plus its residual, which becomes what is lost; one message of bytes."""
        message = []
        for part, residual in zip(parts, residuals, strict=True):
            if part.numel():
                residual.add_(part)
                bits, levels = quantise(residual)
                residual.sub_(reconstruct(bits, levels, len(part)))
                message += [levels.flatten().view(torch.uint8), bits]
        return torch.cat(message) if message else torch.empty(0, dtype=torch.uint8)

    def decode(self, message: Tensor, parts: list[Tensor]) -> None:
        """parts += what a message of `encode` says."""
        place = 0
        for part in parts:
            rows, columns = part.shape
            if part.numel():
                middle = place + 2 * columns * part.itemsize
                end = middle + -(-rows * columns // 8)
                levels = message[place:middle].clone().view(part.dtype).view(2, columns)
                part.add_(reconstruct(message[middle:end], levels, rows))
                place = end


class Onebit(Strategy):
    """`residual`: what this worker has not sent of its gradients; `sum_residual`: what it has not sent of the sums of its columns.

    `bytes_sent` counts what it gave to others.
    """

    lr_scale = "none"
    ships_gradients = True

    def __init__(self, options: OnebitOptions) -> None:
        super().__init__(options)
        self.residual: Tensor | None = None
        self.sum_residual: Tensor | None = None
        self.bytes_sent = 0

    async def epoch(self, worker: Worker, fabric: Fabric) -> None:
        model = worker.learner.model
        columns = Columns([shape for shapes in model.shapes for shape in shapes], fabric.size)
        gradient = torch.zeros_like(worker.params)
        if self.residual is None or self.sum_residual is None:
            self.residual, self.sum_residual = torch.zeros_like(gradient), torch.zeros_like(gradient)
        async for round in self.rounds(worker, fabric, 1):
            frames = 0
            if round.minibatches:
                frames = await fabric.compute(lambda: worker.gradient(gradient))
            else:
                gradient.zero_()
            await self._sum(gradient, columns, fabric)
            total = await fabric.total(frames)
            await fabric.compute(lambda total=total: worker.apply(gradient, int(total)))
            worker.synced()

    async def _sum(self, gradient: Tensor, columns: Columns, fabric: Fabric) -> None:
        """gradient <- what arrives of the sum over workers."""
        assert self.residual is not None and self.sum_residual is not None
        everyone = range(fabric.size)
        outgoing = [columns.encode(columns.own(gradient, k), columns.own(self.residual, k)) for k in everyone]
        incoming = await fabric.scatter(outgoing)
        gradient.zero_()
        own = columns.own(gradient, fabric.rank)
        for message in incoming:
            columns.decode(message, own)
        summed = columns.encode([part.clone() for part in own], columns.own(self.sum_residual, fabric.rank))
        gradient.zero_()
        for k, message in enumerate(await fabric.gather(summed)):
            columns.decode(message, columns.own(gradient, k))
        others = [len(message) for k, message in enumerate(outgoing) if k != fabric.rank]
        self.bytes_sent += sum(others) + len(summed) * (fabric.size - 1)

    def state_dict(self) -> dict[str, Any]:
        kept = {} if self.residual is None or self.sum_residual is None else \
            {"residual": self.residual.cpu(), "sum_residual": self.sum_residual.cpu()}
        return {**kept, "bytes_sent": self.bytes_sent}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.residual, self.sum_residual, self.bytes_sent = state.get("residual"), state.get("sum_residual"), state["bytes_sent"]
