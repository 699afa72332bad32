"""The minibatch queue: who trains on which minibatch where workers are asynchronous. Every minibatch of an epoch is done once.

Split k of the data is worker k's own part. A worker takes the minibatches of its own part first. When they are used up and `queue` is true,
it takes the next minibatch of the part that has most left. So fast workers take more, and each worker stays with its own data as long as it
can. Without `queue` (option --work shards) it rests.

A minibatch is first taken and later settled. It is settled when the other workers have received all that its worker learnt from it. When a
worker dies, its unsettled minibatches have to be done again. If nobody else reads its part of the data, the rest of that part has to be
done by others, too. Any worker that is free does this. So no worker has finished before all minibatches are settled.

`MinibatchQueue` does the accounting only. A simulation has one for all workers. Between processes, process 0 has it, and the others ask
process 0 (`parallel/engines/work_requests.py`).
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

from pykaldist.frames.sampler import Minibatch, Sampler
from pykaldist.parallel.fabric.worker import Worker

MinibatchId = tuple[int, int]  # split, number of the minibatch in it


class _MostLeft:
    """Finds, among some splits, that with most minibatches left; of several the first.

    A heap of (minus what a split had left when it was looked at last, split). What is left only becomes less, so that the heap's first is
    the one sought as soon as its number is true.
    """

    def __init__(self, left: Callable[[int], int], splits: Iterable[int]) -> None:
        self._left = left
        self._heap = [(-left(k), k) for k in splits]
        heapq.heapify(self._heap)

    def add(self, split: int) -> None:
        heapq.heappush(self._heap, (-self._left(split), split))

    def find(self) -> int | None:
        """The split with most left; None where nothing is left."""
        heap = self._heap
        while heap:
            less, split = heap[0]
            left = self._left(split)
            if left == 0:
                heapq.heappop(heap)
            elif left < -less:
                heapq.heapreplace(heap, (-left, split))
            else:
                return split
        return None


class MinibatchQueue:
    """The minibatches of an epoch: `counts[k]` of them in split k."""

    def __init__(self, counts: list[int]) -> None:
        self.counts, self.total = counts, sum(counts)
        self._next = [0] * len(counts)  # number of the next minibatch of each split
        self._taken = 0
        self._again: deque[MinibatchId] = deque()
        self._held: list[deque[MinibatchId]] = [deque() for _ in counts]  # minibatches that each worker has taken and not settled
        self._num_held = 0
        self.dead: set[int] = set()
        self._find_afresh()

    def _find_afresh(self) -> None:
        self._of_all = _MostLeft(self._left, range(len(self.counts)))
        self._of_dead = _MostLeft(self._left, self.dead)

    def _left(self, split: int) -> int:
        """How many minibatches of a split nobody has taken."""
        return self.counts[split] - self._next[split]

    def take(self, rank: int, queue: bool, unsettled: int) -> tuple[MinibatchId, float] | None:
        """Take a worker's next minibatch. Returns (minibatch, fraction of the epoch's, or of its own, minibatches taken before), or None.

        The worker has settled all but the last `unsettled` of the minibatches that it took before.
        """
        self.settle(rank, unsettled)
        split = rank if self._left(rank) else (self._of_all if queue else self._of_dead).find()
        if split is not None:
            minibatch = split, self._next[split]
            fraction = self._taken / self.total if queue or split != rank else minibatch[1] / self.counts[rank]
            self._next[split] += 1
            self._taken += 1
        elif self._again:
            minibatch, fraction = self._again.popleft(), (self.total - 1) / self.total
        else:
            return None
        self._held[rank].append(minibatch)
        self._num_held += 1
        return minibatch, fraction

    def settle(self, rank: int, unsettled: int) -> None:
        """Note that worker `rank` has settled all but the last `unsettled` minibatches that it took."""
        held = self._held[rank]
        while len(held) > unsettled:
            held.popleft()
            self._num_held -= 1

    def remove_dead(self, rank: int) -> int:
        """Note that worker `rank` has died. Returns how many of its minibatches have to be done again."""
        if rank in self.dead:
            return 0
        self.dead.add(rank)
        self._of_dead.add(rank)
        lost = len(self._held[rank])
        self._again.extend(self._held[rank])
        self._held[rank].clear()
        self._num_held -= lost
        return lost

    def more(self, rank: int, queue: bool) -> bool:
        """True where `take` would give worker `rank` a minibatch."""
        return bool(self._again or self._left(rank) or (self._taken < self.total if queue else self._of_dead.find() is not None))

    @property
    def plenty(self) -> bool:
        """True where more minibatches are left to take than there are workers."""
        return self.total - self._taken > len(self.counts)

    @property
    def over(self) -> bool:
        """True where all minibatches are taken and settled."""
        return self._taken == self.total and not self._again and not self._num_held

    def state_dict(self) -> dict[str, Any]:
        return {"next": self._next, "taken": self._taken, "again": list(self._again), "held": [list(held) for held in self._held],
                "dead": sorted(self.dead)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._next, self._taken = list(state["next"]), state["taken"]
        self._again = deque((split, number) for split, number in state["again"])
        self._held = [deque((split, number) for split, number in held) for held in state["held"]]
        self._num_held = sum(map(len, self._held))
        self.dead = set(state["dead"])
        self._find_afresh()


class MinibatchSources:
    """Makes any minibatch of any split.

    This is cheap where the minibatches of a split come in order. The splits read last, `num_open` of them, stay open.
    """

    def __init__(self, sampler: Callable[[int], Sampler], epoch: int, num_open: int) -> None:
        self._sampler, self._epoch, self._num_open = sampler, epoch, num_open
        # split -> its minibatches, from this number on
        self._open: OrderedDict[int, tuple[Generator[Minibatch, int, None], int]] = OrderedDict()

    def assign(self, worker: Worker, minibatch: MinibatchId) -> None:
        """Make `minibatch` the worker's next minibatch."""
        worker.draw_from(self._one(*minibatch))

    def _one(self, split: int, number: int) -> Iterator[Minibatch]:
        found = self._open.pop(split, None)
        if found is None or found[1] > number:
            source = self._sampler(split).epoch(self._epoch, number)
            minibatch = next(source)
        else:
            source = found[0]
            minibatch = source.send(number)
        self._open[split] = source, number + 1
        if len(self._open) > self._num_open:
            self._open.popitem(last=False)
        yield minibatch
