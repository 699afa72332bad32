"""Processes of an MPI job: mpi4py, with the MPI it was installed with.

Buffers of a CPU are passed in place. So are those of a GPU where the MPI says that it takes them (MPI 4.1's mpi_memory_alloc_kinds); else
they go through one pinned buffer of the host's memory that is kept.

MPI waits by spinning, which keeps a core from whoever computes on it. So processes meet first, by a small exchange that does not block, and
who comes early sleeps (`_wait`); what blocks is begun when all are there. It still waits for pieces of buffers, and yields (`WAITING`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from pykaldist.errors import ProcessLostError, UserError
from pykaldist.parallel.fabric.processes import Divisible

if TYPE_CHECKING:
    from mpi4py import MPI

# An all-reduce in pieces that stay in a processor's cache while they are added is faster than one of everything.
CHUNK = 1 << 22  # values
AWAKE_S = 0.0002  # a wait without sleep: what processes that compute in step differ by
PAUSE = 0.125  # of the time waited so far, which is then the most that a wait can grow by
LONGEST_PAUSE_S = 0.01


@contextlib.contextmanager
def _exchange() -> Iterator[None]:
    """Around what all processes do together, in which MPI fails where a process is gone."""
    from mpi4py import MPI

    try:
        yield
    except MPI.Exception as error:
        raise ProcessLostError(str(error)) from error


class Mpi(Divisible):
    """The processes of a communicator, MPI.COMM_WORLD or a duplicate of it."""

    def __init__(self, world: MPI.Comm | None = None) -> None:
        from mpi4py import MPI

        self._mpi, self._world = MPI, MPI.COMM_WORLD if world is None else world
        self.rank, self.size = self._world.Get_rank(), self._world.Get_size()
        info = self._world.Get_info()
        self._takes_cuda = "cuda" in (info.Get("mpi_memory_alloc_kinds") or "")
        info.Free()
        self._staged = torch.empty(0)

    @_exchange()
    def sum(self, buffer: Tensor, scale: float) -> None:
        self._wait(self._world.Ibarrier())
        if buffer.is_cuda and self._takes_cuda:
            torch.cuda.current_stream(buffer.device).synchronize()  # what was written to it is there
            self._world.Allreduce(self._mpi.IN_PLACE, buffer)
            if scale != 1.0:
                buffer.mul_(scale)
            return
        host = self._staging(buffer)
        flat = host.numpy()
        for first in range(0, len(flat), CHUNK):
            chunk = flat[first : first + CHUNK]
            self._world.Allreduce(self._mpi.IN_PLACE, chunk)
            if scale != 1.0:
                chunk *= scale
        if host is not buffer:
            buffer.copy_(host)

    @staticmethod
    def _wait(request: MPI.Request) -> None:
        """Until an exchange is through: awake at first, then asleep for a part of the time waited so far, again and again."""
        start = time.perf_counter()
        while not request.Test():
            waited = time.perf_counter() - start
            if waited > AWAKE_S:
                time.sleep(min(PAUSE * waited, LONGEST_PAUSE_S))

    def _staging(self, buffer: Tensor) -> Tensor:
        """`buffer` itself on a CPU, else its copy in pinned memory."""
        if buffer.device.type == "cpu":
            return buffer
        if self._staged.dtype != buffer.dtype or len(self._staged) < len(buffer):
            self._staged = torch.empty(len(buffer), dtype=buffer.dtype, pin_memory=True)
        return self._staged[: len(buffer)].copy_(buffer)

    @_exchange()
    def control(self, values: Sequence[float] | np.ndarray, largest: bool = False) -> np.ndarray:
        result = np.array(values, dtype=np.float64)
        self._wait(self._world.Iallreduce(self._mpi.IN_PLACE, result, self._mpi.MAX if largest else self._mpi.SUM))
        return result

    @_exchange()
    def scatter(self, parts: list[Tensor]) -> list[Tensor]:
        sent = torch.cat(parts).cpu()
        counts = np.array([len(part) for part in parts], dtype=np.int64)
        incoming = np.empty_like(counts)
        self._wait(self._world.Ialltoall(counts, incoming))
        received = torch.empty(int(incoming.sum()), dtype=sent.dtype)
        self._world.Alltoallv([_bytes(sent), counts * sent.itemsize], [_bytes(received), incoming * sent.itemsize])
        return list(received.to(parts[0].device).split(incoming.tolist()))

    @_exchange()
    def gather(self, buffer: Tensor) -> list[Tensor]:
        sent = buffer.cpu().contiguous()
        counts = np.empty(self.size, dtype=np.int64)
        own = np.array([len(sent)], dtype=np.int64)
        self._wait(self._world.Iallgather(own, counts))
        received = torch.empty(int(counts.sum()), dtype=sent.dtype)
        self._world.Allgatherv(_bytes(sent), [_bytes(received), counts * sent.itemsize])
        return list(received.to(buffer.device).split(counts.tolist()))

    @_exchange()
    def broadcast(self, buffer: Tensor) -> None:
        host = self._staging(buffer)
        self._wait(self._world.Ibarrier())
        self._world.Bcast(_bytes(host))
        if host is not buffer:
            buffer.copy_(host)

    @_exchange()
    def group(self, members: Sequence[int]) -> Mpi:
        everyone = self._world.Get_group()
        some = everyone.Incl(list(members))
        found = Mpi(self._world.Create_group(some, members[0]))
        some.Free()
        everyone.Free()
        return found

    def twin(self) -> Mpi:
        if self._mpi.Query_thread() < self._mpi.THREAD_MULTIPLE:
            raise UserError("this MPI lets only one thread exchange; leave --overlap out, or use an MPI built for THREAD_MULTIPLE.")
        return Mpi(self._world.Dup())


def _bytes(tensor: Tensor) -> np.ndarray:
    return tensor.view(torch.uint8).numpy()
