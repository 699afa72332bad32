"""1-bit SGD: synchronous SGD whose gradients travel as one bit a value, with error feedback.

Seide, Fu, Droppo, Li & Yu (2014), "1-bit stochastic gradient descent and its application to data-parallel distributed training of speech
DNNs". Of each minibatch's gradient G, with the residual R of the last time:
    sent = Q(G + R),      R <- G + R - sent.
Q keeps the sign of a value; of each column of a weight matrix (an input's weights), it also keeps two values, the means of what was not
negative and of what was, by which the signs are reconstructed. So nothing is lost, only late: the sum of all that was sent, plus the
residual, is the sum of all gradients. Vectors (biases), of which there is little, travel as they are.

The columns are shared out among the workers. Each worker sends everyone's columns to their owners, which add them up, quantise the sum with
a residual of their own, and send it round: one bit a value both ways, in place of 32. Parameters take the same step on all workers. One
worker alone has nobody to send to, and takes its gradients as they are.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pykaldist.parallel.fabric.interface import Fabric
from pykaldist.parallel.fabric.worker import Worker
from pykaldist.parallel.strategies.base.strategy import Strategy

PASSES = 60, 40, 10  # over a gradient in memory: quantising it, adding up and quantising the sum, reconstructing that (a GPU's)


@dataclass
class OnebitOptions:
    """onebit."""


@functools.cache
def _powers(device: torch.device) -> Tensor:
    return torch.tensor([1 << i for i in range(8)], dtype=torch.uint8, device=device)


def pack_bits(flags: Tensor) -> Tensor:
    """Booleans (..., n) as bytes (..., ceil(n / 8)), the first in the lowest bit."""
    padded = torch.nn.functional.pad(flags.to(torch.uint8), (0, -flags.shape[-1] % 8))
    return (padded.unflatten(-1, (-1, 8)) * _powers(flags.device)).sum(-1, dtype=torch.uint8)


def unpack_bits(packed: Tensor, count: int) -> Tensor:
    """Booleans (..., count) from `pack_bits`."""
    return (packed[..., None] & _powers(packed.device)).bool().flatten(-2)[..., :count]


def quantise(values: Tensor) -> tuple[Tensor, Tensor]:
    """(bits, levels) of (rows, columns): packed signs (rows, ceil(columns / 8)), uint8; (2, columns) means of a column's negative values,
    and of the rest."""
    positive = values >= 0
    counts = positive.sum(0)
    high = torch.where(positive, values, 0.0).sum(0) / counts.clamp_min(1)
    low = torch.where(positive, 0.0, values).sum(0) / (len(values) - counts).clamp_min_(1)
    return pack_bits(positive), torch.stack([low, high])


def reconstruct(bits: Tensor, levels: Tensor) -> Tensor:
    """What `quantise` left of (..., rows, columns)."""
    low, high = levels.unsqueeze(-2).unbind(-3)
    return torch.where(unpack_bits(bits, levels.shape[-1]), high, low)


class Columns:
    """The weight matrices of a flat buffer, and which of their columns belong to which of `size` workers; likewise its vectors.

    Columns are shared out in groups of 8, whose bits of a row are one byte. What is exchanged between two workers is a message of
    bytes: for each matrix, levels and bits of the columns that one of them owns; then the values of the vectors it owns.
    """

    def __init__(self, shapes: list[tuple[int, ...]], size: int) -> None:
        self.size = size
        self._lengths = [torch.Size(shape).numel() for shape in shapes]
        self._shapes = [shape if len(shape) == 2 else None for shape in shapes]  # None for a vector
        self.matrices = [shape for shape in shapes if len(shape) == 2]
        groups = [-(-columns // 8) for _, columns in self.matrices]
        self._groups = [[n * k // size for k in range(size + 1)] for n in groups]  # their bounds, of each matrix
        values = sum(length for length, shape in zip(self._lengths, self._shapes, strict=True) if shape is None)
        self._values = [values * k // size for k in range(size + 1)]

    def split(self, flat: Tensor) -> tuple[list[Tensor], Tensor]:
        """(each matrix, a view; the values of all vectors, one after the other)."""
        pieces = list(zip(flat.split(self._lengths), self._shapes, strict=True))
        return [piece.view(shape) for piece, shape in pieces if shape], torch.cat([flat[:0], *(p for p, shape in pieces if not shape)])

    def join(self, matrices: list[Tensor], vectors: Tensor, flat: Tensor) -> None:
        """flat <- what `split` would give."""
        own, start = iter(matrices), 0
        for piece, shape in zip(flat.split(self._lengths), self._shapes, strict=True):
            if shape:
                piece.view(shape).copy_(next(own))
            else:
                piece.copy_(vectors[start : (start := start + len(piece))])

    def own(self, matrices: list[Tensor], worker: int) -> list[Tensor]:
        """The columns of worker number `worker`; those of all workers are disjoint and cover everything."""
        return [matrix[:, 8 * bounds[worker] : 8 * bounds[worker + 1]] for matrix, bounds in zip(matrices, self._groups, strict=True)]

    def encode(self, matrices: list[Tensor], residuals: list[Tensor]) -> list[tuple[Tensor, Tensor]]:
        """Quantise each matrix plus its residual, which becomes what is lost."""
        quantised = []
        for matrix, residual in zip(matrices, residuals, strict=True):
            residual.add_(matrix)
            quantised.append(quantise(residual))
            residual.sub_(reconstruct(*quantised[-1]))
        return quantised

    def cut(self, quantised: list[tuple[Tensor, Tensor]], vectors: Tensor, worker: int) -> Tensor:
        """The message of what worker number `worker` owns of everything."""
        parts = []
        for (bits, levels), bounds in zip(quantised, self._groups, strict=True):
            first, last = bounds[worker], bounds[worker + 1]
            parts.append((bits[:, first:last], levels[:, 8 * first : 8 * last]))
        return self.message(parts, vectors[self._values[worker] : self._values[worker + 1]])

    @staticmethod
    def message(quantised: list[tuple[Tensor, Tensor]], vectors: Tensor) -> Tensor:
        """All of that, as bytes."""
        parts = [part for bits, levels in quantised for part in (levels.flatten().view(torch.uint8), bits.flatten())]
        return torch.cat([*parts, vectors.view(torch.uint8)])

    def parsed(self, messages: Tensor, owner: int, dtype: torch.dtype) -> tuple[list[tuple[Tensor, Tensor]], Tensor]:
        """(bits (..., rows, groups) and levels (..., 2, columns) of each matrix, values of vectors) of messages (..., length) about what
        worker number `owner` owns."""
        itemsize, place, quantised = dtype.itemsize, 0, []
        for (rows, columns), bounds in zip(self.matrices, self._groups, strict=True):
            first, last = bounds[owner], bounds[owner + 1]
            count = min(8 * last, columns) - 8 * first if last > first else 0
            middle = place + 2 * count * itemsize
            end = middle + rows * (last - first)
            levels = _as(dtype, messages[..., place:middle]).unflatten(-1, (2, count))
            quantised.append((messages[..., middle:end].unflatten(-1, (rows, last - first)), levels))
            place = end
        return quantised, _as(dtype, messages[..., place:])


def _as(dtype: torch.dtype, data: Tensor) -> Tensor:
    """Bytes as numbers, aligned to them."""
    numbers = torch.empty(*data.shape[:-1], data.shape[-1] // dtype.itemsize, dtype=dtype, device=data.device)
    numbers.view(torch.uint8).copy_(data)
    return numbers


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
            self.residual = torch.zeros_like(gradient)
            owned = columns.own(columns.split(gradient)[0], fabric.rank)
            self.sum_residual = gradient.new_zeros(sum(part.numel() for part in owned))
        self.residual, self.sum_residual = self.residual.to(gradient.device), self.sum_residual.to(gradient.device)
        async for round in self.rounds(worker, fabric, 1):
            frames = 0
            if round.minibatches:
                frames = await fabric.compute(lambda at=round.fraction: worker.gradient(gradient, at))
            else:
                gradient.zero_()
            if fabric.size > 1:
                await self.sum(gradient, columns, fabric)
            total = await fabric.total(frames)
            await fabric.compute(lambda total=total, at=round.fraction: worker.apply(gradient, int(total), at))
            worker.synced()

    async def sum(self, gradient: Tensor, columns: Columns, fabric: Fabric) -> None:
        """gradient <- what arrives of the sum over workers."""
        assert self.residual is not None and self.sum_residual is not None
        everyone, me, dtype = range(fabric.size), fabric.rank, gradient.dtype
        residual, sum_residual = self.residual, self.sum_residual

        def encode() -> list[Tensor]:
            matrices, vectors = columns.split(gradient)
            quantised = columns.encode(matrices, columns.split(residual)[0])
            return [columns.cut(quantised, vectors, k) for k in everyone]

        def add(messages: list[Tensor]) -> Tensor:
            incoming, own_vectors = columns.parsed(torch.stack(messages), me, dtype)
            sums = [reconstruct(bits, levels).sum(0) for bits, levels in incoming]
            lengths = [part.numel() for part in sums]
            residuals = [own.view(part.shape) for own, part in zip(sum_residual.split(lengths), sums, strict=True)]
            return columns.message(columns.encode(sums, residuals), own_vectors.sum(0))

        def decode(messages: list[Tensor]) -> None:
            received = [columns.parsed(message, k, dtype) for k, message in enumerate(messages)]
            whole = [reconstruct(torch.cat([bits for bits, _ in parts], 1), torch.cat([levels for _, levels in parts], 1))
                     for parts in zip(*[quantised for quantised, _ in received], strict=True)]
            columns.join(whole, torch.cat([values for _, values in received]), gradient)

        outgoing = await fabric.work("quantising", encode, gradient, PASSES[0])
        messages = await fabric.scatter(outgoing)
        summed = await fabric.work("quantising", lambda: add(messages), gradient, PASSES[1])
        answers = await fabric.gather(summed)
        await fabric.work("quantising", lambda: decode(answers), gradient, PASSES[2])
        self.bytes_sent += sum(len(message) for k, message in enumerate(outgoing) if k != me) + len(summed) * (fabric.size - 1)

    def rejected(self) -> None:
        """What was not sent yet is of the model that training went back from."""
        self.residual = self.sum_residual = None

    def state_dict(self) -> dict[str, Any]:
        kept = {} if self.residual is None or self.sum_residual is None else \
            {"residual": self.residual.cpu(), "sum_residual": self.sum_residual.cpu()}
        return {**kept, "bytes_sent": self.bytes_sent}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.residual, self.sum_residual, self.bytes_sent = state.get("residual"), state.get("sum_residual"), state["bytes_sent"]
