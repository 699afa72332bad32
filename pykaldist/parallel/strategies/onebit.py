"""1-bit SGD: synchronous SGD whose gradients are sent with one bit a value, and error feedback.

Seide, Fu, Droppo, Li & Yu (2014), "1-bit stochastic gradient descent and its application to data-parallel distributed training of speech
DNNs". For each minibatch's gradient G, with the residual R of the minibatch before,
    sent = Q(G + R),      R <- G + R - sent.
Q keeps the sign of each value. For each column of a weight matrix (the weights of one input), it also keeps two values: the mean of the
values that are not negative, and the mean of the negative ones. The signs are decoded to these means. So nothing is lost, only delayed: the
sum of all that was sent, plus the residual, is the sum of all gradients. Vectors (biases), which are small, are sent as they are.

Each worker owns a part of the columns. Each worker sends all columns to their owners. An owner sums its columns, quantises the sum with a
residual of its own, and sends it to all. So both ways take one bit a value in place of 32. All workers take the same step. With one worker
nothing is quantised.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pykaldist.parallel.fabric.interface import Fabric
from pykaldist.parallel.fabric.worker import Worker
from pykaldist.parallel.strategies.base.strategy import Strategy

PASSES = 60, 40, 10  # passes over a gradient in memory, measured on a GPU: quantise it; sum and quantise the sum; decode the sum


@dataclass
class OnebitOptions:
    """onebit."""


@functools.cache
def _powers(device: torch.device) -> Tensor:
    return torch.tensor([1 << i for i in range(8)], dtype=torch.uint8, device=device)


def pack_bits(flags: Tensor) -> Tensor:
    """Pack booleans (..., n) into bytes (..., ceil(n / 8)), the first in the lowest bit."""
    padded = torch.nn.functional.pad(flags.to(torch.uint8), (0, -flags.shape[-1] % 8))
    return (padded.unflatten(-1, (-1, 8)) * _powers(flags.device)).sum(-1, dtype=torch.uint8)


def unpack_bits(packed: Tensor, count: int) -> Tensor:
    """Unpack booleans (..., count) that `pack_bits` has packed."""
    return (packed[..., None] & _powers(packed.device)).bool().flatten(-2)[..., :count]


def quantise(values: Tensor) -> tuple[Tensor, Tensor]:
    """Quantise a matrix (rows, columns) to (bits, levels).

    bits: packed signs, (rows, ceil(columns / 8)), uint8. levels: (2, columns), the means of a column's negative values, and of its other
    values.
    """
    positive = values >= 0
    counts = positive.sum(0)
    high = torch.where(positive, values, 0.0).sum(0) / counts.clamp_min(1)
    low = torch.where(positive, 0.0, values).sum(0) / (len(values) - counts).clamp_min_(1)
    return pack_bits(positive), torch.stack([low, high])


def reconstruct(bits: Tensor, levels: Tensor) -> Tensor:
    """Decode what `quantise` made of matrices (..., rows, columns)."""
    low, high = levels.unsqueeze(-2).unbind(-3)
    return torch.where(unpack_bits(bits, levels.shape[-1]), high, low)


class Columns:
    """The columns of the weight matrices in a flat buffer, and the values of its vectors, shared out among `size` workers.

    Columns are shared out in groups of 8, whose bits in one row are one byte. A message between two workers is a tensor of bytes: for each
    matrix, the levels and bits of the columns that one of them owns, then the values of the vectors that it owns.
    """

    def __init__(self, shapes: list[tuple[int, ...]], size: int) -> None:
        self.size = size
        self._lengths = [torch.Size(shape).numel() for shape in shapes]
        self._shapes = [shape if len(shape) == 2 else None for shape in shapes]  # of each matrix; None for a vector
        self.matrices = [shape for shape in shapes if len(shape) == 2]
        groups = [-(-columns // 8) for _, columns in self.matrices]
        self._groups = [[n * k // size for k in range(size + 1)] for n in groups]  # for each matrix, the first group of each worker
        values = sum(length for length, shape in zip(self._lengths, self._shapes, strict=True) if shape is None)
        self._values = [values * k // size for k in range(size + 1)]

    def split(self, flat: Tensor) -> tuple[list[Tensor], Tensor]:
        """Split a flat buffer into (views of its matrices, one tensor with the values of all vectors)."""
        pieces = list(zip(flat.split(self._lengths), self._shapes, strict=True))
        return [piece.view(shape) for piece, shape in pieces if shape], torch.cat([flat[:0], *(p for p, shape in pieces if not shape)])

    def join(self, matrices: list[Tensor], vectors: Tensor, flat: Tensor) -> None:
        """Write into `flat` the buffer that `split` would split so."""
        own, start = iter(matrices), 0
        for piece, shape in zip(flat.split(self._lengths), self._shapes, strict=True):
            if shape:
                piece.view(shape).copy_(next(own))
            else:
                piece.copy_(vectors[start : (start := start + len(piece))])

    def own(self, matrices: list[Tensor], worker: int) -> list[Tensor]:
        """The columns of worker number `worker`. Those of all workers are disjoint and cover everything."""
        return [matrix[:, 8 * bounds[worker] : 8 * bounds[worker + 1]] for matrix, bounds in zip(matrices, self._groups, strict=True)]

    def encode(self, matrices: list[Tensor], residuals: list[Tensor]) -> list[tuple[Tensor, Tensor]]:
        """Quantise each matrix plus its residual. The residual becomes what quantising has lost."""
        quantised = []
        for matrix, residual in zip(matrices, residuals, strict=True):
            residual.add_(matrix)
            quantised.append(quantise(residual))
            residual.sub_(reconstruct(*quantised[-1]))
        return quantised

    def cut(self, quantised: list[tuple[Tensor, Tensor]], vectors: Tensor, worker: int) -> Tensor:
        """The message with the part that worker number `worker` owns."""
        parts = []
        for (bits, levels), bounds in zip(quantised, self._groups, strict=True):
            first, last = bounds[worker], bounds[worker + 1]
            parts.append((bits[:, first:last], levels[:, 8 * first : 8 * last]))
        return self.message(parts, vectors[self._values[worker] : self._values[worker + 1]])

    @staticmethod
    def message(quantised: list[tuple[Tensor, Tensor]], vectors: Tensor) -> Tensor:
        """The message of some quantised columns and values of vectors."""
        parts = [part for bits, levels in quantised for part in (levels.flatten().view(torch.uint8), bits.flatten())]
        return torch.cat([*parts, vectors.view(torch.uint8)])

    def parsed(self, messages: Tensor, owner: int, dtype: torch.dtype) -> tuple[list[tuple[Tensor, Tensor]], Tensor]:
        """Parse messages (..., length) about the part of worker number `owner`.

        Returns (for each matrix, bits (..., rows, groups) and levels (..., 2, columns); the values of vectors).
        """
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
    """Bytes as numbers of a type, in memory that is aligned for it."""
    numbers = torch.empty(*data.shape[:-1], data.shape[-1] // dtype.itemsize, dtype=dtype, device=data.device)
    numbers.view(torch.uint8).copy_(data)
    return numbers


Record = Callable[[tuple[float, ...], Callable[[], None]], None]  # `Optimizer.recorded`


class Onebit(Strategy):
    """1-bit SGD. `residual`: what this worker has not yet sent of its gradients. `sum_residual`: the same for the sums of its own columns.

    `bytes_sent` counts the bytes that it has sent to others. `gradient` and messages stay in place, as recorded work needs.
    """

    lr_scale = "none"
    ships_gradients = True
    remembers = ("residual", "sum_residual", "bytes_sent")

    def __init__(self, options: OnebitOptions) -> None:
        super().__init__(options)
        self.residual: Tensor | None = None
        self.sum_residual: Tensor | None = None
        self.bytes_sent = 0
        self.gradient: Tensor | None = None
        self._messages: dict[str, Tensor] = {}

    async def epoch(self, worker: Worker, fabric: Fabric) -> None:
        model = worker.learner.model
        columns = Columns([shape for shapes in model.shapes for shape in shapes], fabric.size)
        gradient = self.gradient = torch.zeros_like(worker.params) if self.gradient is None else self.gradient
        self.to(gradient.device)
        if self.residual is None or self.sum_residual is None:
            self.residual = torch.zeros_like(gradient)
            owned = columns.own(columns.split(gradient)[0], fabric.rank)
            self.sum_residual = gradient.new_zeros(sum(part.numel() for part in owned))
        async for round in self.rounds(worker, fabric, 1):
            frames = await self.gradient_of(worker, fabric, round, gradient)
            if fabric.size > 1:
                await self.sum(gradient, columns, fabric, worker.optimizer.recorded)
            total = await fabric.total(frames)
            await fabric.compute(worker.apply, gradient, int(total), round.fraction)
            worker.synced()

    async def sum(self, gradient: Tensor, columns: Columns, fabric: Fabric, record: Record = lambda kind, work: work()) -> None:
        """Replace the gradient by the quantised sum over all workers. `record` does work on the device, recorded where that pays."""
        assert self.residual is not None and self.sum_residual is not None
        everyone, me, dtype = range(fabric.size), fabric.rank, gradient.dtype
        residual, sum_residual, messages = self.residual, self.sum_residual, self._messages
        kind = gradient.data_ptr(), residual.data_ptr(), sum_residual.data_ptr()

        def encode() -> None:
            matrices, vectors = columns.split(gradient)
            quantised = columns.encode(matrices, columns.split(residual)[0])
            for k in everyone:
                self._leave(f"to {k}", columns.cut(quantised, vectors, k))

        def add() -> None:
            incoming, own_vectors = columns.parsed(messages["incoming"], me, dtype)
            sums = [reconstruct(bits, levels).sum(0) for bits, levels in incoming]
            lengths = [part.numel() for part in sums]
            residuals = [own.view(part.shape) for own, part in zip(sum_residual.split(lengths), sums, strict=True)]
            self._leave("sum", columns.message(columns.encode(sums, residuals), own_vectors.sum(0)))

        def decode() -> None:
            received = [columns.parsed(messages[f"from {k}"], k, dtype) for k in everyone]
            whole = [reconstruct(torch.cat([bits for bits, _ in parts], 1), torch.cat([levels for _, levels in parts], 1))
                     for parts in zip(*[quantised for quantised, _ in received], strict=True)]
            columns.join(whole, torch.cat([values for _, values in received]), gradient)

        def encoded() -> list[Tensor]:
            record((1, *kind), encode)
            return [messages[f"to {k}"] for k in everyone]

        def added(incoming: list[Tensor]) -> Tensor:
            self._leave("incoming", torch.stack(incoming))
            record((2, *kind), add)
            return messages["sum"]

        def decoded(answers: list[Tensor]) -> None:
            for k, answer in enumerate(answers):
                self._leave(f"from {k}", answer)
            record((3, *kind), decode)

        outgoing = await fabric.work("quantising", encoded, gradient, PASSES[0])
        incoming = await fabric.scatter(outgoing)
        summed = await fabric.work("quantising", lambda: added(incoming), gradient, PASSES[1])
        answers = await fabric.gather(summed)
        await fabric.work("quantising", lambda: decoded(answers), gradient, PASSES[2])
        self.bytes_sent += sum(len(message) for k, message in enumerate(outgoing) if k != me) + len(summed) * (fabric.size - 1)

    def _leave(self, name: str, message: Tensor) -> None:
        """Leave a message in the place where the last one of this name lies."""
        if name in self._messages and self._messages[name].shape == message.shape:
            self._messages[name].copy_(message)
        else:
            self._messages[name] = message.clone()

    def rejected(self) -> None:
        """Forget the residuals: they belong to the model that training went back from."""
        self.residual = self.sum_residual = None
