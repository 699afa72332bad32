"""Elasticity: what the hosts of an elastic job agree on, so that it goes on without the workers that die, and with those that join.

An elastic job is a synchronous one in which the exchange of a round is the mean over the workers that live, weighted by their frames. When
a round begins, the workers agree who lives (`Fabric.next_round`). What a lost worker has not brought into an exchange is dealt out to the
others (`fabric/shares.py`). A replacement joins at the beginning of a round: it gets the whole state of a worker that lives, but for
its counts (model, momentum, block momentum, Fisher factors, exchanges under way), and a part of what is left of the epoch.

All of this is a function of the seed and of who lived when; so each process keeps it by itself, and a simulation gives the same again.
Exchanges that are begun now and finished later are carried out when they are begun, so that all workers have the same of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

import numpy as np

from pykaldist.parallel.fabric.shares import Shares, count, minibatches
from pykaldist.parallel.fabric.worker import Worker

Answer = tuple[int, int, int] | None  # to `Fabric.next_round`
# What makes a worker of this process join: (rank, states of a worker that lives and of its strategy) -> the coroutine of its epoch.
Join = Callable[[int, dict[str, Any]], Coroutine[Any, Any, Any]]


def named(ranks: Iterable[int]) -> str:
    """Workers in words."""
    ranks = sorted(ranks)
    return f"worker{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


class Elasticity:
    """The shares of the epoch, and what has become of workers in it.

    `lost` and `joined`: for the history. `log` tells the user.
    """

    def __init__(self, size: int, log: Callable[[str], None]) -> None:
        self.log = log
        self._known = set(range(size))  # who lived when the last round began
        self._loaded: dict[str, Any] | None = None
        self.begin_epoch()

    def begin_epoch(self) -> None:
        """Forget the epoch before, unless a state within this one was loaded."""
        self.shares: Shares | None = None
        self.lost: list[dict[str, int]] = []
        self.joined: list[dict[str, int]] = []
        self._drawing: set[int] = set()  # workers here whose minibatches come from their share
        self.inherited: deque[Any] = deque()  # results of the exchanges under way, which strategies begin again
        if self._loaded is not None:
            self.lost, self.joined = list(self._loaded["lost"]), list(self._loaded["joined"])
            self.inherited.extend(self._loaded["under_way"])

    def abandon(self) -> None:
        """Forget the epoch."""
        self._loaded = None
        self.begin_epoch()

    def next_round(self, workers: Mapping[int, Worker], living: list[int], joined: list[int], period: int) -> dict[int, Answer]:
        """Begin a round with the workers `living`, of which `joined` have just come; the answers to the workers of this process."""
        some = next(iter(workers.values()))
        shares = self.shares = self.shares or (self._loaded_shares(some) if self._loaded else self._open(some, self._known))
        joined = [rank for rank in living if rank in joined or rank not in shares.runs]  # these, where a run is resumed with all workers
        for members in ([rank for rank in living if rank not in joined], living):
            if set(shares.runs) != set(members):
                self._change(some, members)
                self._drawing.clear()
        self._known = set(living)
        for rank, worker in workers.items():
            if rank not in self._drawing:
                worker.take_share(minibatches(worker.sampler.of_split, worker.epoch, shares.ahead(rank)), shares.since[rank])
                self._drawing.add(rank)
        before = shares.rounds
        numbers, behind = shares.begin_round(period)
        return {rank: None if behind < 0 else (numbers[rank], before, behind) for rank in workers}

    def _open(self, worker: Worker, living: Iterable[int]) -> Shares:
        """The shares of an epoch that begins; those of the workers that are dead already are dealt out."""
        sampler, epoch = worker.sampler, worker.epoch
        splits = range(sampler.partition.splits)
        shares = Shares([np.diff(sampler.of_split(split).block_ends(epoch), prepend=0).tolist() for split in splits], sampler.seed, epoch)
        shares.change(living)
        return shares

    def _loaded_shares(self, worker: Worker) -> Shares:
        """The shares of an epoch that goes on."""
        assert self._loaded is not None
        shares = self._open(worker, list(range(worker.sampler.partition.splits)))
        shares.load_state_dict(self._loaded["shares"])
        self._loaded = None
        return shares

    def _change(self, worker: Worker, members: list[int]) -> None:
        """Deal out anew, and say so."""
        shares = self.shares
        assert shares is not None
        lost, joined = set(shares.runs) - set(members), set(members) - set(shares.runs)
        entries = [{"worker": rank, "round": shares.rounds + 1, "minibatches": count(shares.runs[rank]),
                    "frames": sum(worker.sampler.of_split(split).frames_between(worker.epoch, start, stop)
                                  for split, start, stop in shares.runs[rank])} for rank in sorted(lost)]
        shares.change(members)
        where = f"before round {shares.rounds + 1} of epoch {worker.epoch + 1}"
        if lost:
            self.lost += entries
            again, frames = (sum(entry[name] for entry in entries) for name in ("minibatches", "frames"))
            self.log(f"{named(lost)} lost {where}; {len(members)} go on, and share what was left: {again} minibatches, {frames} frames")
        for rank in sorted(joined):
            self.joined.append({"worker": rank, "round": shares.rounds + 1})
            self.log(f"worker {rank} joined {where}")

    def settle(self, ranks: Iterable[int]) -> None:
        """Note that models of these workers were averaged."""
        if self.shares is not None:
            self.shares.settle(ranks)

    def notes(self) -> dict[str, Any]:
        """Entries for the epoch's line in `history.jsonl`."""
        return {name: list(found) for name, found in (("lost", self.lost), ("joined", self.joined)) if found}

    def end_epoch(self) -> None:
        """Note that the epoch is over: a checkpoint does not hold its shares."""
        self.shares = None

    def state_dict(self, under_way: list[Any]) -> dict[str, Any]:
        """What a checkpoint has to hold; `under_way`: the results of the exchanges that are begun and not finished."""
        within = {} if self.shares is None else {"shares": self.shares.state_dict(), "lost": self.lost, "joined": self.joined,
                                                 "under_way": under_way}
        return {"known": sorted(self._known), **within}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._known = set(state["known"])
        self._loaded = state if "shares" in state else None
        self.begin_epoch()
