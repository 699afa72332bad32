"""The processes of a job: the operations that MPI, NCCL and gloo provide to a host.

All operations are collective: every process has to call them, in the same order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from torch import Tensor


class Processes(ABC):
    """The operations of process `rank` of `size` processes."""

    rank: int
    size: int

    @abstractmethod
    def sum(self, buffer: Tensor, scale: float) -> None:
        """Replace a buffer by `scale` times its sum over all processes. The order of the sum is free."""

    @abstractmethod
    def control(self, values: Sequence[float] | np.ndarray, largest: bool = False) -> np.ndarray:
        """Return the sum over processes, or the largest, of a few float64 values, on the host."""

    @abstractmethod
    def scatter(self, parts: list[Tensor]) -> list[Tensor]:
        """Send part p to process p, and return what each process sent here, by rank. Parts may differ in length, not in type."""

    @abstractmethod
    def gather(self, buffer: Tensor) -> list[Tensor]:
        """Return the buffers of all processes, by rank. They may differ in length, not in type."""

    def barrier(self) -> None:
        """Wait until all processes have called this."""
        self.control([0.0])

    def close(self) -> None:
        """Leave the job, when all processes have called this."""
        self.barrier()

    @abstractmethod
    def duplicate(self) -> Processes:
        """Return the same processes with a channel of their own, on which a second thread can exchange at the same time. Collective."""


class SplittableProcesses(Processes):
    """Processes of which a group can exchange by itself."""

    @abstractmethod
    def group(self, members: Sequence[int]) -> SplittableProcesses:
        """Return a group of the processes `members`, in this order.

        This process must be one of them. All members have to call it, and nobody else.
        """

    @abstractmethod
    def broadcast(self, buffer: Tensor) -> None:
        """Replace a buffer by that of the first process."""


class SingleProcess(Processes):
    """A job of one process, which has nobody to exchange with."""

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

    def duplicate(self) -> Processes:
        return self
