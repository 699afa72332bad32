"""Trains workers by a host for tests: epochs that can be stopped at a checkpoint, and a count of the frames that are trained on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.fabric.worker import Worker
from pykaldist.parallel.strategies.base.strategy import Strategy


class Stopped(Exception):
    """Raised at the offer of a checkpoint at which a run is to stop."""


def epochs(workers: Sequence[Worker], strategies: Sequence[Strategy], host: Host, count: int = 2, learn_rate: float = 0.01,
           stop: int | None = None, after: Callable[[], None] = lambda: None) -> int:
    """Train up to epoch `count`, and call `after` at each epoch's end; returns how many checkpoints were offered.

    Raises Stopped at offer number `stop`.
    """
    offers = 0

    def on_safe_point(wish: int) -> None:
        nonlocal offers
        offers += 1
        if offers == stop:
            raise Stopped

    host.workers, host.wish, host.on_safe_point = workers, lambda: 1, on_safe_point
    for epoch in range(workers[0].epoch, count):
        for worker in workers:
            worker.begin_epoch(epoch, learn_rate)
        host.begin_epoch()
        host.run([s.epoch(w, fabric) for s, w, fabric in zip(strategies, workers, host.fabrics, strict=True)])
        after()
    return offers


def counted(workers: list[Worker]) -> Counter[int]:
    """A Counter of the frames that the workers train on, by number in the store, filled while they train."""
    seen: Counter[int] = Counter()
    gathers = {id(worker.sampler.gather): worker.sampler.gather for worker in workers}
    assert len(gathers) == 1  # workers of one process share it
    (gather,) = gathers.values()

    def counting(rows, source):  # on a CPU, rows are numbered as the store's frames
        seen.update(rows.tolist())
        return gather(rows, source)

    for worker in workers:
        worker.sampler.gather = counting
    return seen
