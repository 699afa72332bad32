"""Counts the frames that workers train on."""

from __future__ import annotations

from collections import Counter

from pykaldist.parallel.fabric.worker import Worker


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
