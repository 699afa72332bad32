"""Streaming DiLoCo: fragments of the model are exchanged in turn while training goes on, for the steps of an outer optimiser.

Douillard et al. (2025), arXiv:2501.18512; DiLoCo: Douillard et al. (2023), arXiv:2311.08105. Each worker w_k trains by itself. The outer
model o, common to all, is cut into P fragments of equal size: P pieces each at equal distances (`strided`), or one (`sequential`). Every H
/ P minibatches the workers send the outer gradient D_k = o - w_k of the next fragment. tau minibatches later its mean D over all workers
has come, weighted by the frames that each has trained on since this fragment was sent last. A step of SGD with Nesterov's momentum follows:
    v <- mu v + D;    o <- o - lr (D + mu v);    w_k <- a w_k + (1 - a) o.
With a = 0 a worker loses what it has learnt of the fragment during tau, with a = 1 what all others have learnt. One fragment, tau = 0, a =
0 are DiLoCo (as `bmuf`, see there for the gain); with mu = 0 and lr = 1 model averaging. Statistics are averaged, without momentum.

With --outer-bits 8 or 4 a value is sent in so many bits (the paper's 4 are of floating point), in blocks of 256 that share a scale. Each
worker owns an equal part of a fragment. All send their parts to the owners, who average them and send the means to all. What rounding loses
of a gradient, and of a mean, is added the next time: sent = Q(D_k + r_k), r_k <- D_k + r_k - sent (error feedback).

At an epoch's end the exchanges under way arrive, then all fragments are exchanged with a = 0: the epoch's model is o, from which all go on.
The rate is that of one worker, as the outer step makes up for fewer updates. One worker alone does not exchange."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.options import option
from pykaldist.parallel.fabric.interface import Fabric
from pykaldist.parallel.fabric.worker import Worker
from pykaldist.parallel.strategies.base.strategy import PeriodOptions, Strategy

BLOCK = 256  # values that share a scale


@dataclass
class DilocoOptions(PeriodOptions):
    """diloco."""

    average_period: int = option(20, "minibatches of a worker between exchanges of a fragment, a multiple of --fragments")
    fragments: int = option(5, "fragments of the model, exchanged in turn")
    fragment_pattern: str = option("strided", "a fragment is many pieces at equal distances, or one", ("strided", "sequential"))
    overlap_steps: int = option(1, "tau: minibatches that are trained on while a fragment is exchanged, fewer than the period")
    mixing: float = option(0.5, "a: what a worker keeps of its own fragment when the outer one arrives")
    outer_learning_rate: float = option(0.7, "learning rate of the outer optimiser")
    outer_momentum: float = option(0.9, "Nesterov's momentum of the outer optimiser")
    outer_bits: int = option(32, "bits of a value in an exchange; fewer than 32: with error feedback", (32, 8, 4))

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.fragments > 0 and self.overlap_steps >= 0 and 0.0 <= self.mixing <= 1.0 and 0.0 <= self.outer_momentum < 1.0
                and self.outer_learning_rate > 0.0):
            raise UserError("diloco: expected at least 1 of --fragments, 0 of --overlap-steps, --mixing in [0, 1], --outer-momentum in "
                            "[0, 1), and a positive --outer-learning-rate.")

    def gap(self, minibatch_size: int) -> int:  # minibatches from a fragment to the next
        period = self.minibatches(minibatch_size)
        if period == 0 or period % self.fragments or self.overlap_steps >= period:
            raise UserError(f"--average-period {period}: expected a multiple of --fragments {self.fragments} over --overlap-steps.")
        return period // self.fragments


def encode(values: Tensor, bits: int) -> Tensor:
    """Encode values as bytes: first the scale of each block, then each value as a whole number of `bits` bits."""
    blocks, most = torch.nn.functional.pad(values, (0, -len(values) % BLOCK)).view(-1, BLOCK), 2 ** (bits - 1) - 1
    scales = (blocks.abs().amax(1) / most).float()
    codes = (blocks / scales.clamp_min(1e-30)[:, None]).round_().clamp_(-most, most).add_(most).to(torch.uint8)
    return torch.cat([scales.view(torch.uint8), (codes[:, ::2] + 16 * codes[:, 1::2] if bits == 4 else codes).flatten()])


def decode(message: Tensor, values: Tensor, bits: int) -> Tensor:
    """Decode a message of `encode` to values of the same shape and type as `values`."""
    scales, codes = message.tensor_split([4 * -(-len(values) // BLOCK)])
    codes = torch.stack([codes % 16, codes // 16], 1).flatten() if bits == 4 else codes
    blocks = codes.view(-1, BLOCK).to(values.dtype).sub_(2 ** (bits - 1) - 1) * scales.clone().view(torch.float32)[:, None]
    return blocks.flatten()[: len(values)].to(values.dtype)


@dataclass
class Fragment:
    """A fragment of a worker's model: its pieces, their lengths, and the slices of it that are statistics of the data."""

    pieces: list[Tensor]
    sizes: list[int]
    statistics: list[slice]


def fragments_of(worker: Worker, options: DilocoOptions) -> list[Fragment]:
    """The fragments of a worker's model."""
    count = options.fragments ** (2 if options.fragment_pattern == "strided" else 1)
    edges = [len(worker.params) * i // count for i in range(count + 1)]
    fragments = []
    for number in range(options.fragments):
        statistics, size = [], 0
        pieces = [slice(edges[i], edges[i + 1]) for i in range(number, count, options.fragments)]
        for p in pieces:
            statistics += [slice(size + max(s.start, p.start) - p.start, size + min(s.stop, p.stop) - p.start)
                           for s in worker.statistics if s.start < p.stop and p.start < s.stop]
            size += p.stop - p.start
        fragments.append(Fragment([worker.params[p] for p in pieces], [p.stop - p.start for p in pieces], statistics))
    return fragments


class Diloco(Strategy):
    """`flights`, exchanges under way: [fragment, minibatch when it is due, weight, what was sent]; `clock`: minibatches of the epoch.

    `turn`: fragments sent; `frames`: of the epoch when each was sent last. Of each fragment, its pieces one after the other: `outer` and
    `velocity`; `lost`: r_k, and `lost_means`: those of its means."""

    options: DilocoOptions
    lr_scale, one_model = "none", False
    remembers = ("outer", "velocity", "lost", "lost_means", "flights", "clock", "turn", "frames")

    def __init__(self, options: DilocoOptions) -> None:
        super().__init__(options)
        self.turn, self.clock, self.frames = 0, 0, [0] * options.fragments
        self.rejected()

    def rejected(self) -> None:
        self.outer: list[Tensor] = []  # from the first epoch on
        self.velocity: list[Tensor] = []
        self.lost: list[Tensor] = []
        self.lost_means: list[Any] = [0.0] * self.options.fragments
        self.flights: list[Any] = []

    def inelastic(self) -> str:
        return "" if self.options.outer_bits == 32 else \
            f"--outer-bits {self.options.outer_bits} leaves with each worker what rounding has lost, and it would be lost with the worker"

    def join(self, state: dict[str, Any]) -> None:
        super().join(state)
        self.frames = [0] * self.options.fragments  # the worker that joins has learnt nothing since any fragment was sent

    def contract(self, workers: int, minibatch_size: int) -> list[tuple[str, str]]:
        o, gap = self.options, self.options.gap(minibatch_size)
        gain = o.outer_learning_rate / (1.0 - o.outer_momentum) / workers
        return [*super().contract(workers, minibatch_size),
                ("fragments", f"{o.fragments}, one every {gap} minibatches, mixed in by {1 - o.mixing:g} after {o.overlap_steps} more"),
                ("outer optimizer", f"rate {o.outer_learning_rate:g}, momentum {o.outer_momentum:g}: gain C = {gain:.3g}")]

    async def epoch(self, worker: Worker, fabric: Fabric) -> None:
        if fabric.size == 1:
            return await self.by_itself(worker, fabric)
        o, params, gap = self.options, worker.params, self.options.gap(worker.sampler.minibatch_size)
        self.to(params.device)
        self._fragments = fragments_of(worker, o)
        if not self.outer:
            self.outer = [torch.cat(fragment.pieces) for fragment in self._fragments]
            self.velocity = [torch.zeros_like(outer) for outer in self.outer]
            self.lost = [torch.zeros_like(outer) for outer in self.outer] if o.outer_bits < 32 else []
        await self._through(worker, fabric, gap)
        while fabric.elastic and await self._through(worker, fabric, gap, True):
            pass  # a worker that was lost in the last exchange has left more rounds
        self.clock, self.frames = 0, [0] * o.fragments

    async def _through(self, worker: Worker, fabric: Fabric, gap: int, again: bool = False) -> bool:
        """Train through all rounds, with their exchanges and those of the end. Returns False where `again` there is no round."""
        o, found = self.options, not again
        tickets = [await fabric.begin(self._mean(fabric, *flight)) for flight in self.flights]  # under way when the run was stopped
        async for round in self.rounds(worker, fabric, gap):
            found = True
            for i in range(gap):  # as many for all workers, also for those that have no minibatches left
                if i < round.minibatches:
                    await fabric.compute(worker.step)
                self.clock += 1
                if i + 1 == gap and not round.last:
                    tickets.append(await self._send(worker, fabric, self.turn % o.fragments, self.clock + o.overlap_steps))
                    self.turn += 1
                while self.flights and self.flights[0][1] <= self.clock:
                    await self._land(worker, fabric, tickets.pop(0), o.mixing)
        for ticket in tickets if found else ():
            await self._land(worker, fabric, ticket, o.mixing)
        for fragment in range(o.fragments if found else 0):
            await self._land(worker, fabric, await self._send(worker, fabric, fragment, 0), 0.0)
        return found

    async def _send(self, worker: Worker, fabric: Fabric, fragment: int, due: int) -> int:
        """Begin to exchange a fragment. Returns the ticket."""
        bits = self.options.outer_bits
        gradient = self.outer[fragment] - torch.cat(self._fragments[fragment].pieces)

        def rounded() -> list[Tensor]:
            parts = gradient.add_(self.lost[fragment]).tensor_split(fabric.size)
            messages = [encode(part, bits) for part in parts]
            self.lost[fragment] = gradient - torch.cat([decode(m, part, bits) for m, part in zip(messages, parts, strict=True)])
            return messages

        sent = [gradient] if bits == 32 else await fabric.work("rounding", rounded, gradient, 30)
        self.flights.append([fragment, due, worker.frames - self.frames[fragment], sent])
        self.frames[fragment] = worker.frames
        return await fabric.begin(self._mean(fabric, *self.flights[-1]))

    async def _mean(self, fabric: Fabric, fragment: int, due: int, weight: float, sent: list[Tensor]) -> tuple[Tensor, Any]:
        """(the mean outer gradient, what rounding has lost of this worker's part of it)."""
        bits = self.options.outer_bits
        if bits == 32:
            return await fabric.mean(sent[0], weight), 0.0
        parts = torch.empty_like(self.outer[fragment]).tensor_split(fabric.size)
        weights = torch.cat(await fabric.gather(self.outer[fragment].new_full((1,), weight))).clamp_min_(1e-6)
        mean = torch.zeros_like(parts[fabric.rank]) + self.lost_means[fragment]
        for share, message in zip(weights / weights.sum(), await fabric.scatter(sent), strict=True):
            mean += share * decode(message, mean, bits)
        means = [decode(m, part, bits) for m, part in zip(await fabric.gather(encode(mean, bits)), parts, strict=True)]
        return torch.cat(means), mean - means[fabric.rank]

    async def _land(self, worker: Worker, fabric: Fabric, ticket: int, mixing: float) -> None:
        """Take the outer step for the fragment that was sent first, whose mean has come."""
        o, fragment = self.options, self.flights.pop(0)[0]
        mean, self.lost_means[fragment] = await fabric.finish(ticket)

        def step() -> None:
            own, outer, velocity = self._fragments[fragment], self.outer[fragment], self.velocity[fragment]
            torch.add(mean, velocity, alpha=o.outer_momentum, out=velocity)
            for s in own.statistics:
                velocity[s] = 0.0
                outer[s].sub_(mean[s], alpha=1.0 - o.outer_learning_rate)
            outer.sub_(mean, alpha=o.outer_learning_rate).sub_(velocity, alpha=o.outer_learning_rate * o.outer_momentum)
            # one of torch's documented operations on lists of tensors, whose names have an underscore
            torch._foreach_lerp_(own.pieces, outer.split(own.sizes), 1.0 - mixing)

        await fabric.work("the outer step", step, mean, 18)
