"""Who trains on which minibatch, where workers go each their own way: every one of an epoch once, whoever is fast and whoever dies.

Split k of the data is worker k's own part. A worker that has taken the last minibatch of its own goes on, in a `queue`, with the next one
of the part that has most left; so fast workers take more, and each keeps to data that it has at hand as long as it can. With
shards it rests.

A minibatch is taken, and later settled: when the worker that took it holds nothing of it back from the others any more. When a worker dies,
what it had not settled is to be done again, and so is, where it was its own part's only reader, the rest of its part; whoever is free does
it. So nobody has rested for good before everything is settled.

`Work` is the books alone. In a simulation there is one for all workers; between processes it is kept by process 0, whom the others ask.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterator
from typing import Any

from pykaldist.frames.sampler import Minibatch, Sampler
from pykaldist.parallel.fabric.worker import Worker

Place = tuple[int, int]  # a minibatch: its split, its number there


class Work:
    """The minibatches of an epoch, `counts[k]` of them in split k."""

    def __init__(self, counts: list[int]) -> None:
        self.counts, self.total = counts, sum(counts)
        self._next = [0] * len(counts)  # of each split
        self._taken = 0
        self._again: deque[Place] = deque()
        self._held: list[deque[Place]] = [deque() for _ in counts]  # by each worker: taken, not settled
        self.dead: set[int] = set()

    def take(self, rank: int, queue: bool, kept: int) -> tuple[Place, float] | None:
        """The worker's next minibatch and the part of the epoch's, or of its own, that was taken before; None: none for it now.

        It has settled all but the last `kept` of those that it took before.
        """
        self.settle(rank, kept)
        split = rank
        if self._next[rank] == self.counts[rank]:
            split = max(self._open(rank, queue), key=lambda k: (self.counts[k] - self._next[k], -k), default=-1)
        if split >= 0:
            place = split, self._next[split]
            fraction = self._taken / self.total if queue or split != rank else place[1] / self.counts[rank]
            self._next[split] += 1
            self._taken += 1
        elif self._again:
            place, fraction = self._again.popleft(), (self.total - 1) / self.total
        else:
            return None
        self._held[rank].append(place)
        return place, fraction

    def _open(self, rank: int, queue: bool) -> list[int]:
        """The splits of which worker `rank` may take the next minibatch."""
        return [k for k, count in enumerate(self.counts) if self._next[k] < count and (queue or k == rank or k in self.dead)]

    def settle(self, rank: int, kept: int) -> None:
        """Worker `rank` holds back nothing but the last `kept` minibatches that it took."""
        held = self._held[rank]
        while len(held) > kept:
            held.popleft()

    def lose(self, rank: int) -> int:
        """Worker `rank` is dead; the minibatches that it had taken and that are to be done again."""
        if rank in self.dead:
            return 0
        self.dead.add(rank)
        lost = len(self._held[rank])
        self._again.extend(self._held[rank])
        self._held[rank].clear()
        return lost

    def more(self, rank: int, queue: bool) -> bool:
        """True where `take` would give worker `rank` something."""
        return bool(self._again or self._open(rank, queue))

    @property
    def plenty(self) -> bool:
        """More than one minibatch for every worker has not been taken yet."""
        return self.total - self._taken > len(self.counts)

    @property
    def over(self) -> bool:
        """Everything is taken and settled."""
        return self._taken == self.total and not self._again and not any(self._held)

    def state_dict(self) -> dict[str, Any]:
        return {"next": self._next, "taken": self._taken, "again": list(self._again), "held": [list(held) for held in self._held],
                "dead": sorted(self.dead)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._next, self._taken = list(state["next"]), state["taken"]
        self._again = deque((split, number) for split, number in state["again"])
        self._held = [deque((split, number) for split, number in held) for held in state["held"]]
        self.dead = set(state["dead"])


class Sources:
    """Makes any minibatch of any split, cheaply so where a split's come in their order; of the splits read last, `kept` stay at hand."""

    def __init__(self, sampler: Callable[[int], Sampler], epoch: int, kept: int) -> None:
        self._sampler, self._epoch, self._kept = sampler, epoch, kept
        # split -> its minibatches, from this number on
        self._open: OrderedDict[int, tuple[Generator[Minibatch, int, None], int]] = OrderedDict()

    def point(self, worker: Worker, place: Place) -> None:
        """The worker's next minibatch is to be this one."""
        worker.draw_from(self._one(*place))

    def _one(self, split: int, number: int) -> Iterator[Minibatch]:
        found = self._open.pop(split, None)
        if found is None or found[1] > number:
            source = self._sampler(split).epoch(self._epoch, number)
            minibatch = next(source)
        else:
            source = found[0]
            minibatch = source.send(number)
        self._open[split] = source, number + 1
        if len(self._open) > self._kept:
            self._open.popitem(last=False)
        yield minibatch
