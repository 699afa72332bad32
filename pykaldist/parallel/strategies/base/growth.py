"""Growth: more and more of a job's workers train, and the others wait. It is Kaldi's schedule of parallel jobs (Povey et al., 2015).

Kaldi trains in *iterations*. In one, n jobs begin with the same model, each trains on an archive of examples, and the next begins with the
mean of their models. The learning rate is n times that of one job. n grows from n_0 to N by the same amount from iteration to iteration:
n(i) = n_0 + (N - n_0) i / I. Of all the data, the first i of I iterations take the share
    u = (n_0 i + (N - n_0) i^2 / (2 I)) / (I (n_0 + N) / 2),    so that    n(u) = (n_0^2 + (N^2 - n_0^2) u)^(1/2),
rounded, for which nobody has to count iterations.

Here an iteration is a round of an epoch. The minibatches of all workers' parts of the data stand in one row, part behind part, in an order
that is drawn for each epoch. A round takes the next ones, and deals them out to n workers in equal parts. Who gets what follows from the
seed, the epoch and the place in the row alone, so that a resumed run goes on with the same. Workers join in an order that spreads them
over the ranks (0, 4, 2, 6, 1, 5, 3, 7 of 8): those that train are as many in each process, where processes have several workers each.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from pykaldist.frames.sampler import generator_of
from pykaldist.parallel.fabric.shares import Run, divided, minibatches
from pykaldist.parallel.fabric.worker import Worker

ORDER = 6  # number of this stream of random numbers of a seed; the sampler has those before


def growing(initial: int, final: int, done: float) -> int:
    """The number of workers that train when the share `done` of all the data is used up."""
    return min(final, math.floor(0.5 + math.sqrt(initial**2 + (final**2 - initial**2) * min(done, 1.0))))


@functools.lru_cache(maxsize=8)
def joining(size: int) -> tuple[int, ...]:
    """The order in which `size` workers join: ranks at the places of the van der Corput sequence, 0, 1/2, 1/4, 3/4, 1/8, 5/8 ..."""
    bits = (size - 1).bit_length()
    numbers = (int(format(i, f"0{bits}b")[::-1], 2) if bits else 0 for i in range(1 << bits))
    return tuple(dict.fromkeys(number * size >> bits for number in numbers))


@dataclass(frozen=True)
class Iteration:
    """A round of a growing job, from `begin` to `end` of the epoch's `total`: `workers` train, the first to join on the first of `runs`."""

    workers: int
    runs: list[list[Run]]
    begin: int
    end: int
    total: int

    @property
    def last(self) -> bool:
        """True for the epoch's last round."""
        return self.end == self.total


class Row:
    """The minibatches of all parts of the data in one epoch, in the order in which they are dealt out. `counts[k]`: those of part k."""

    def __init__(self, counts: list[int], seed: int, epoch: int) -> None:
        order = generator_of(seed, ORDER, epoch).permutation(len(counts)).tolist()
        self.runs: list[Run] = [(split, 0, counts[split]) for split in order]
        self.total = sum(counts)

    def iteration(self, begin: int, workers: int, period: int) -> Iteration:
        """Deal out the next minibatches from place `begin` on, up to `period` to each of `workers` workers."""
        number = min(workers * period, self.total - begin)
        left, runs = divided(self.runs, begin)[1], []
        for turn in range(workers):
            own, left = divided(left, number // workers + (turn < number % workers))
            runs.append(own)
        return Iteration(workers, runs, begin, begin + number, self.total)


def iterations(worker: Worker, initial: int, size: int, period: int, begin: int) -> Iterator[Iteration]:
    """The rounds of a worker's epoch from place `begin` on, in a job of `size` workers that began with `initial`."""
    row = Row([worker.sampler.of_split(split).minibatches for split in range(size)], worker.sampler.seed, worker.epoch)
    while begin < row.total:
        found = row.iteration(begin, growing(initial, size, (worker.epoch + begin / row.total) / worker.num_epochs), period)
        yield found
        begin = found.end


def take(worker: Worker, rank: int, iteration: Iteration, size: int) -> int:
    """Give a worker its minibatches of a round, and the rate of the workers that train in it; returns how many it has."""
    worker.set_share(iteration.workers / size)
    turn = joining(size).index(rank)
    own = iteration.runs[turn] if turn < iteration.workers else []
    left = max(1, math.ceil((iteration.total - iteration.begin) / iteration.workers))
    worker.take_share(minibatches(worker.sampler.of_split, worker.epoch, own), (iteration.begin / iteration.total, worker.index, left))
    return sum(stop - start for _, start, stop in own)
