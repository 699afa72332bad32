"""The fabric of one worker: nothing to exchange."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from torch import Tensor

from pykaldist.parallel.fabric import Fabric

T = TypeVar("T")


class Single(Fabric):
    """One worker in one process; `compute_seconds` adds up the time spent in `compute`."""

    rank, size = 0, 1

    def __init__(self) -> None:
        self.compute_seconds = 0.0

    async def compute(self, work: Callable[[], T]) -> T:
        before = time.perf_counter()
        result = work()
        self.compute_seconds += time.perf_counter() - before
        return result

    async def average(self, buffer: Tensor, weight: float) -> None:
        pass  # the mean over one worker

    def now(self) -> float:
        return time.perf_counter()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            work.send(None)
        except StopIteration as end:
            return end.value
        raise RuntimeError("a strategy waited for another worker, and there is none")
