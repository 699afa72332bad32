"""The processes of a job, as a host sees them: what MPI, NCCL, gloo, or nothing at all has to provide.

All of a process group's operations are collective: every process calls them in the same order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from torch import Tensor


class Processes(ABC):
    """Process `rank` of `size`."""

    rank: int
    size: int

    @abstractmethod
    def sum(self, buffer: Tensor, scale: float) -> None:
        """buffer <- scale times the sum over processes, added up in any order."""

    @abstractmethod
    def control(self, values: Sequence[float] | np.ndarray, largest: bool = False) -> np.ndarray:
        """The sum, or the largest, of a few float64 values, on the host."""

    @abstractmethod
    def scatter(self, parts: list[Tensor]) -> list[Tensor]:
        """Part p goes to process p; what each process sent here, by rank. Parts may differ in length, not in type."""

    @abstractmethod
    def gather(self, buffer: Tensor) -> list[Tensor]:
        """Every process's buffer, by rank; they may differ in length, not in type."""

    def barrier(self) -> None:
        """Until all have come here."""
        self.control([0.0])

    def close(self) -> None:
        """Part from the others, when all have come here: the end of a job."""
        self.barrier()

    @abstractmethod
    def twin(self) -> Processes:
        """The same processes by a channel of its own, on which a second thread can exchange at the same time. Collective."""


class Divisible(Processes):
    """Processes of which some can exchange by themselves."""

    @abstractmethod
    def group(self, members: Sequence[int]) -> Divisible:
        """The processes `members`, in this order, of which this is one; all of them have to ask for it, and nobody else."""

    @abstractmethod
    def broadcast(self, buffer: Tensor) -> None:
        """buffer <- that of the first process."""


class Alone(Processes):
    """One process: nobody to exchange with."""

    rank, size = 0, 1

    def sum(self, buffer: Tensor, scale: float) -> None:
        if scale != 1.0:
            buffer.mul_(scale)

    def control(self, values: Sequence[float] | np.ndarray, largest: bool = False) -> np.ndarray:
        return np.array(values, dtype=np.float64)

    def scatter(self, parts: list[Tensor]) -> list[Tensor]:
        return parts

    def gather(self, buffer: Tensor) -> list[Tensor]:
        return [buffer]

    def twin(self) -> Processes:
        return self
