"""A fabric: how bytes move between workers, and what time it is.

A strategy is a coroutine that awaits a fabric's operations, so that the same lines run over real processes and in a simulation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from torch import Tensor

T = TypeVar("T")


class Fabric(ABC):
    """Rank `rank` of `size` workers. `time` says whether `now` is measured or simulated."""

    rank: int
    size: int
    time: str = "measured"

    @abstractmethod
    async def compute(self, work: Callable[[], T]) -> T:
        """Do `work` and account for its time."""

    @abstractmethod
    async def average(self, buffer: Tensor, weight: float) -> None:
        """Replace `buffer` by sum_k weight_k buffer_k / sum_k weight_k over all workers."""

    @abstractmethod
    def now(self) -> float:
        """Seconds since an arbitrary start."""

    @abstractmethod
    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Drive a strategy's coroutine to its end."""
