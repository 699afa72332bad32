"""ADPSGD, asynchronous decentralised parallel SGD: workers average their models with one other worker at a time, while they compute.

Lian, Zhang, Zhang & Liu (2018); Zhang, Cui, Finkler et al. (2019, 2020). Every worker computes a gradient of its own model w_k while w_k is
averaged with others'. Then it takes its step:

    g = gradient at w_k;   meanwhile  w_k <- sum_j T_kj w_j;   then  w_k <- w_k - lr g.

T is doubly stochastic. So the mean over workers is moved only by the gradients: by lr / N times each of them. For this reason the default
learning rate is N times that of one worker.

Mixing without a barrier. Two workers exchange a flow c d. Worker i begins: it sends its model s_i, and goes on computing. Worker j answers
when this arrives:
    d = s_i - w_j;   w_j <- w_j + c d;   d goes back (or w_j, from which i computes d), and  w_i <- w_i - c d  before i's next step.
What one worker gains the other loses: the sum over workers stays the same, whatever happens in between. No worker waits for one that
computes, and no worker is held while others wait for it. So there can be no deadlock, for any N. The flow is computed from s_i. Worker i
may meanwhile have answered other calls, which has left the part `keep` of s_i in w_i. The weight of s_i would become negative where keep <
c. So a worker whose own exchange is under way refuses calls that would lead to this.

Patterns, where t counts a worker's own rounds:
    ring          c = 1/3 with the worker after it. Each worker also answers the one before it: at equal speeds, w_k <- (w_{k-1} + w_k +
                  w_{k+1}) / 3, exactly
    random-ring   the same on a ring that is permuted at random for each t, in the same way on all workers
    pairwise      c = 1/2, both then have the mean: an even worker calls an odd one drawn at random; odd ones only answer
    delay-by-one  the mean of all, by an all-reduce that runs while all compute: workers are synchronous, each trains on its own part of
                  the data, and every gradient is that of the model before the average

Each worker has an `age`, which is mixed like its model and grows by one with each step. It says how many steps of a worker the model holds.
The sum of all ages is the number of steps of all workers. The staleness of an exchange is the difference of the two ages. It is 0 where all
workers are equally fast.

At an epoch's end every worker's model is the mean of all.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pykaldist.options import option
from pykaldist.parallel.fabric.interface import Fabric
from pykaldist.parallel.fabric.mixing import Mixing, PublishedModel
from pykaldist.parallel.fabric.worker import Worker
from pykaldist.parallel.strategies.base.asynchronous import Asynchronous, WorkOptions

PATTERNS = ("ring", "random-ring", "pairwise", "delay-by-one")
RINGS, PARTNERS = range(2)  # streams of random numbers


@dataclass
class AdpsgdOptions(WorkOptions):
    """adpsgd."""

    pattern: str = option("ring", "who averages with whom", PATTERNS)
    pattern_seed: int = option(777, "seed of random rings and partners")

    @property
    def share(self) -> float:
        """The share c of the difference of two models that flows."""
        return 0.5 if self.pattern == "pairwise" else 1.0 / 3.0


def partner(options: AdpsgdOptions, rank: int, living: Sequence[int], round: int) -> int | None:
    """The learner with which learner `rank` begins an exchange in its round number `round`; None where it begins none.

    `living` are the ranks of the living learners, in order.
    """
    size = len(living)
    if size == 1 or options.pattern == "delay-by-one":
        return None
    place = living.index(rank)
    if options.pattern == "ring":
        return living[(place + 1) % size]
    if options.pattern == "random-ring":
        return living[_successors(options.pattern_seed, round, size)[place]]
    return None if place % 2 else living[2 * int(_generator(options.pattern_seed, PARTNERS, rank, round).integers(size // 2)) + 1]


@functools.lru_cache(64)  # workers are in a few rounds at a time
def _successors(seed: int, round: int, size: int) -> list[int]:
    """Which place of the random ring of a round follows each place."""
    ring = _generator(seed, RINGS, round).permutation(size)
    after = np.empty_like(ring)
    after[ring] = np.roll(ring, -1)
    return after.tolist()


def _generator(*words: int) -> np.random.Generator:
    """A random generator that depends on these numbers only."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(words)))


class Learners(Sequence[int]):
    """The numbers of the living groups of `size` workers, in order, of `living` workers.

    These are whole groups, but for the moment in which the processes of a group that has lost one leave: then a number may be wrong.
    """

    def __init__(self, living: Sequence[int], size: int) -> None:
        self._living, self._size = living, size

    def __len__(self) -> int:
        return len(self._living) // self._size

    def __getitem__(self, place: Any) -> Any:
        return self._living[place * self._size] // self._size

    def index(self, learner: int, start: int = 0, stop: int = sys.maxsize) -> int:
        """The place of a living group."""
        return self._living.index(learner * self._size, start * self._size) // self._size


class Adpsgd(Asynchronous):
    """The strategy ADPSGD, of one worker.

    `round` counts the worker's rounds of the run. `begun`: its own exchange is under way. `keep`: the part that is left, in its model,
    of the model that it has sent. `gradient` is needed within an epoch only.

    A learner is one worker here. In `hadpsgd` it is a group of workers, whose first one exchanges for all.

    `parallel/fabric/mixing.py` explains how models are mixed while their worker computes. A worker that is a learner by itself takes its
    step in place. A step that does more than add to the parameters (max-norm, say) has to be made on the mixed model, and so is made
    afterwards.
    """

    options: AdpsgdOptions
    lr_scale = "linear"
    keeps_mean = True
    remembers = ("round", "age", "keep", "begun", "gradient")

    def __init__(self, options: AdpsgdOptions) -> None:
        super().__init__(options)
        self.round = 0
        self.age, self.keep, self.begun = 0.0, 1.0, False
        self.gradient: Tensor | None = None

    @property
    def independent(self) -> bool:
        return self.options.pattern != "delay-by-one"

    @property
    def fault_tolerant(self) -> bool:
        return self.independent

    def group(self, fabric: Fabric) -> range:
        """The workers of this one's learner. All groups are of one size."""
        return self.lost_with(fabric.rank, fabric.size, fabric.node_size)

    async def epoch(self, worker: Worker, fabric: Fabric) -> None:
        group = self.group(fabric)
        self.to(worker.params.device)
        if not self._in_place(worker, fabric, group) and self.gradient is None:
            self.gradient = torch.zeros_like(worker.params)
        await (self._freely if self.independent else self._in_step)(worker, fabric, group)
        worker.synced()
        self.gradient = None

    async def _freely(self, worker: Worker, fabric: Fabric, group: range) -> None:
        """Train an epoch with each learner at its own speed."""
        params, c, size, queue = worker.params, self.options.share, len(group), self.queue
        first, in_place = fabric.rank == group[0], self._in_place(worker, fabric, group)
        mixing = Mixing(params, c)
        if in_place:
            mixing = published = PublishedModel(params, c, fabric, worker.optimizer.parts)
            worker.optimizer.around = published.around
        fabric.serve(lambda sender, other, age: self._answer(mixing, other, age))
        going = True
        while going:
            fabric.mark()
            if size > 1:
                await fabric.broadcast_within(params, group)
            fraction = await fabric.take(queue, group=group)
            with fabric.hold_calls():
                other = self._partner(fabric, size) if first and fraction is not None else None
                self.begun, age = other is not None, self.age
                if fabric.answers_while_computing and fraction is not None:
                    mixing.begin_compute()
            ticket = None if other is None else await fabric.call(other * size, mixing.sent, age)
            if ticket is not None:
                mixing.call_sent(ticket)
            frames = await self._compute(worker, fabric, group, fraction)
            answer, years = (None, 0.0) if ticket is None else await fabric.answer(ticket)
            with fabric.hold_calls():
                mixing.end_compute(answer)
                if answer is not None:
                    self.age -= c * years
                    fabric.staleness[round(abs(years))] += 1
                if frames:
                    if not in_place:
                        assert self.gradient is not None
                        worker.apply(self.gradient, frames, 1.0 if fraction is None else fraction)
                    self.age += 1.0
                    self.keep = 1.0
                    self.round += 1
                self.begun, answer = False, None  # release a lent buffer
            going = bool(frames) or await self._more(fabric, group)
        await fabric.average(params, float(first), measure=True)
        learners = await fabric.total(float(first))
        self.age = await fabric.total(self.age * first) / learners

    async def _more(self, fabric: Fabric, group: range) -> bool:
        """Whether there is another minibatch. A group goes on together where one of its workers was told so."""
        more = await fabric.more(self.queue, group=group)
        return more if len(group) == 1 else await fabric.sum_within(torch.zeros(1), float(more), group) > 0

    def _in_place(self, worker: Worker, fabric: Fabric, group: range) -> bool:
        """True where the worker updates its parameters in place, while others exchange with a copy."""
        return self.independent and fabric.answers_while_computing and len(group) == 1 and worker.optimizer.additive

    def _partner(self, fabric: Fabric, size: int) -> int | None:
        """The learner to begin an exchange with, or None. Each learner has `size` workers."""
        learners = fabric.living if size == 1 else Learners(fabric.living, size)
        found = partner(self.options, fabric.rank // size, learners, self.round)
        return None if found == fabric.rank // size else found

    async def _compute(self, worker: Worker, fabric: Fabric, group: range, fraction: float | None) -> float:
        """Compute the gradient of the group's next minibatches.

        Returns their frames. Both are divided by the group's size. 0 at the epoch's end.

        A worker that updates in place takes its step instead.
        """
        if self._in_place(worker, fabric, group):
            if fraction is None:
                return 0
            before = worker.frames
            with fabric.polling() if worker.optimizer.goes_map_by_map else nullcontext():
                await fabric.compute(worker.step, fraction)
            return worker.frames - before
        assert self.gradient is not None
        gradient = self.gradient

        def work() -> int:
            if fraction is None:
                gradient.zero_()
                return 0
            frames = worker.gradient(gradient, fraction)
            if len(group) > 1:
                gradient.div_(len(group))
            return frames

        frames: float = await fabric.compute(work)
        if len(group) > 1:
            frames = await fabric.sum_within(gradient, frames, group)
        return frames / len(group)

    def _answer(self, mixing: Mixing, other: Tensor | None, age: float) -> tuple[Tensor | None, float]:
        """Answer another learner's call: (the buffer that goes back, the difference of the ages). (None, 0) where the call is refused."""
        c = self.options.share
        if other is None or (self.begun and self.keep * (1.0 - c) < c):
            return None, 0.0
        years = age - self.age
        answer = mixing.answer(other)
        self.age += c * years
        if self.begun:
            self.keep *= 1.0 - c
        return answer, years

    async def _in_step(self, worker: Worker, fabric: Fabric, group: range) -> None:
        """Train an epoch with the pattern delay-by-one."""
        async for round in self.rounds(worker, fabric, 1):
            ticket = await fabric.begin(fabric.mean(worker.params, 1.0))
            frames = await self._compute(worker, fabric, group, round.fraction if round.minibatches else None)
            worker.params.copy_(await fabric.finish(ticket))
            if frames:
                assert self.gradient is not None
                worker.apply(self.gradient, frames, round.fraction)
                fabric.staleness[0] += 1
            if round.last:
                await fabric.average(worker.params, 1.0, measure=True)

    def remedies(self) -> list[str]:
        return ["let models mix faster by --pattern random-ring"] * (self.options.pattern == "ring")
