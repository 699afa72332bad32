"""Shares: which minibatches of an epoch each worker of an elastic job trains on, while workers die and others join.

At first worker k has split k of the data, as in any job. In each round a worker trains on the next minibatches of its share. They are
`settled` when an exchange has what it has learnt from them. When workers are lost, what they have not settled is dealt out to those that
live: their rounds under way, which have to be done again, and all behind. When workers join, they get a part of what is left. Either way
all have equally much left then, up to one minibatch; a worker keeps the front of its share, and gives away its end.

So each minibatch of the epoch is settled once, whoever lives. Who gets what depends on the seed, the epoch, who lived in which round, and
on nothing else: every process finds it out by itself, and so does a run that is resumed or repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from pykaldist.frames.sampler import Minibatch, Sampler

Run = tuple[int, int, int]  # a split, its first minibatch, and the one behind its last
SHARES = 4  # number of this stream of random numbers of a seed; the sampler has those before


def count(runs: Iterable[Run]) -> int:
    """The minibatches in runs."""
    return sum(stop - start for _, start, stop in runs)


def divided(runs: Iterable[Run], number: int) -> tuple[list[Run], list[Run]]:
    """(the first `number` minibatches of runs, all behind them)."""
    front: list[Run] = []
    back: list[Run] = []
    for split, start, stop in runs:
        middle = min(stop, start + number)
        number -= middle - start
        front += [(split, start, middle)] * (middle > start)
        back += [(split, middle, stop)] * (stop > middle)
    return front, back


def dealt(runs: Iterable[Run], numbers: Iterable[int]) -> Iterator[list[Run]]:
    """Deal out the minibatches of `runs` in their order: for each of `numbers`, runs of so many minibatches. There have to be enough."""
    source = iter(runs)
    split = start = stop = 0
    for number in numbers:
        given: list[Run] = []
        while number:
            if start == stop:
                split, start, stop = next(source)
            middle = min(stop, start + number)
            if middle > start:
                given.append((split, start, middle))
            number, start = number - (middle - start), middle
        yield given


class Shares:
    """The shares of an epoch. `blocks[k]`: minibatches of each block of split k, in their order in the epoch.

    `runs`: what each living worker has not settled, in its order. `under_way`: how many of these, the first, it trains on in this round, or
    has. `done`: how many it has trained on in all. `rounds`: those that have begun.
    """

    def __init__(self, blocks: list[list[int]], seed: int, epoch: int) -> None:
        self.blocks, self.seed, self.epoch = blocks, seed, epoch
        self.runs: dict[int, list[Run]] = {k: [(k, 0, sum(own))] for k, own in enumerate(blocks)}
        self.under_way = dict.fromkeys(self.runs, 0)
        self.done = dict.fromkeys(self.runs, 0)
        # worker -> (fraction of its epoch that was done, its minibatches that were done, those that were left), when shares changed last
        self.since: dict[int, tuple[float, int, int]] = {k: (0.0, 0, sum(own)) for k, own in enumerate(blocks)}
        self.rounds = self.changes = 0

    def left(self, rank: int) -> int:
        """Minibatches that a worker has not begun."""
        return count(self.runs[rank]) - self.under_way[rank]

    def ahead(self, rank: int) -> list[Run]:
        """The runs that a worker has not begun."""
        return divided(self.runs[rank], self.under_way[rank])[1]

    def _fraction(self, rank: int) -> float:
        """The fraction of a worker's epoch that is done. It never falls."""
        fraction, done, left = self.since[rank]
        return min(1.0, fraction + (1.0 - fraction) * (self.done[rank] - done) / left) if left else 1.0

    def _next(self, rank: int, period: int) -> tuple[int, int]:
        """(minibatches of a worker's next round, rounds that it has before it).

        With a period of 0 a round is a block, or, once shares have changed, as many minibatches as the largest block has.
        """
        left = self.left(rank)
        if period == 0 and not self.changes:
            ends = np.cumsum(self.blocks[rank])
            ahead = ends[ends > self.done[rank]]
            return (int(ahead[0]) - self.done[rank] if len(ahead) else 0), len(ahead)
        size = period or max(1, max(map(max, self.blocks)))
        return min(size, left), -(-left // size)

    def begin_round(self, period: int) -> tuple[dict[int, int], int]:
        """Begin a round of up to `period` minibatches of each worker: (its minibatches by worker, rounds that follow); -1 at the end."""
        ahead = {rank: self._next(rank, period) for rank in self.runs}
        rounds = max(behind for _, behind in ahead.values())
        numbers = {rank: number for rank, (number, _) in ahead.items()}
        for rank, number in numbers.items():
            self.under_way[rank] += number
            self.done[rank] += number
        self.rounds += rounds > 0
        return numbers, rounds - 1

    def settle(self, ranks: Iterable[int]) -> None:
        """Note that what these workers have learnt until now was in an exchange."""
        for rank in ranks:
            self.runs[rank] = divided(self.runs[rank], self.under_way[rank])[1]
            self.under_way[rank] = 0

    def change(self, living: Iterable[int]) -> list[Run]:
        """Deal out anew what is left, to these workers. Returns what those that are lost had not settled."""
        living = sorted(living)
        lost, joined = sorted(set(self.runs) - set(living)), sorted(set(living) - set(self.runs))
        if not lost and not joined:
            return []
        self.changes += 1
        unsettled = [run for rank in lost for run in self.runs[rank]]
        stay = min(set(living) & set(self.runs))
        for rank in joined:
            self.runs[rank], self.under_way[rank], self.done[rank], self.since[rank] = [], 0, self.done[stay], self.since[stay]
        fractions = {rank: self._fraction(rank) for rank in living}
        for rank in lost:
            for part in (self.runs, self.under_way, self.done, self.since):
                del part[rank]
        pool = self._leave(unsettled, living)
        targets = self._targets(count(pool), living)
        for rank, given in zip(targets, dealt(pool, targets.values()), strict=True):
            self.runs[rank] += given
        for rank in living:
            self.since[rank] = fractions[rank], self.done[rank], self.left(rank)
        return unsettled

    def _leave(self, unsettled: list[Run], living: list[int]) -> list[Run]:
        """Take from workers what they have above their part. Returns it, behind what is unsettled of the lost."""
        targets, pool = self._parts(count(unsettled), living), list(unsettled)
        for rank, number in targets.items():
            if self.left(rank) > number:
                self.runs[rank], end = divided(self.runs[rank], self.under_way[rank] + number)
                pool += end
        return pool

    def _targets(self, number: int, living: list[int]) -> dict[int, int]:
        """How many of `number` minibatches of nobody each worker gets, in the order in which they are handed out."""
        return {rank: part - self.left(rank) for rank, part in self._parts(number, living).items()}

    def _parts(self, number: int, living: list[int]) -> dict[int, int]:
        """How many minibatches each worker is to have left, where `number` are nobody's. Who has one more is drawn."""
        total = number + sum(map(self.left, living))
        draw = np.random.Generator(np.random.Philox(np.random.SeedSequence([self.seed, SHARES, self.epoch, self.changes, self.rounds])))
        order = draw.permutation(living).tolist()
        return {rank: total // len(order) + (place < total % len(order)) for place, rank in enumerate(order)}

    def state_dict(self) -> dict[str, Any]:
        return {"runs": {str(k): [list(run) for run in runs] for k, runs in self.runs.items()},
                "done": {str(k): n for k, n in self.done.items()}, "since": {str(k): list(since) for k, since in self.since.items()},
                "under_way": {str(k): n for k, n in self.under_way.items()}, "rounds": self.rounds, "changes": self.changes}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.runs = {int(k): [(split, start, stop) for split, start, stop in runs] for k, runs in state["runs"].items()}
        self.under_way, self.done = ({int(k): n for k, n in state[name].items()} for name in ("under_way", "done"))
        self.since = {int(k): (fraction, done, left) for k, (fraction, done, left) in state["since"].items()}
        self.rounds, self.changes = state["rounds"], state["changes"]


def minibatches(sampler: Callable[[int], Sampler], epoch: int, runs: Iterable[Run]) -> Iterator[Minibatch]:
    """The minibatches of runs; `sampler` gives that of a split."""
    for split, start, stop in runs:
        yield from islice(sampler(split).epoch(epoch, start), stop - start)
