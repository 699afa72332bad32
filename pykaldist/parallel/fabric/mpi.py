"""The processes of an MPI job, by mpi4py and the MPI that it was installed with.

Buffers on a CPU are passed to MPI in place. Buffers on a GPU are passed in place too where the MPI says that it takes them (MPI 4.1's
mpi_memory_alloc_kinds). Otherwise they are copied through one pinned buffer in host memory, which is kept.

MPI waits by spinning, which takes the core from whoever computes on it. So processes first meet by a small exchange that does not block,
and a process that comes early sleeps (`_wait`). The exchange that blocks begins when all are there. MPI still spins while it waits for the
pieces of a buffer, but the operating system lets others run then.
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
from pykaldist.parallel.fabric.processes import SplittableProcesses

if TYPE_CHECKING:
    from mpi4py import MPI

# An all-reduce in pieces that stay in the processor's cache while they are added is faster than one of the whole buffer.
CHUNK = 1 << 22  # values
AWAKE_S = 0.0002  # a wait this long without sleep; synchronous processes arrive within about this time of each other
PAUSE = 0.125  # each sleep is this part of the time waited so far: a wait is at most this much too long
LONGEST_PAUSE_S = 0.01


@contextlib.contextmanager
def _exchange() -> Iterator[None]:
    """Turn an MPI error in a collective operation into ProcessLostError: MPI fails there when a process has ended."""
    from mpi4py import MPI

    try:
        yield
    except MPI.Exception as error:
        raise ProcessLostError(str(error)) from error


class Mpi(SplittableProcesses):
    """The processes of an MPI communicator: MPI.COMM_WORLD, or a duplicate of it."""

    def __init__(self, world: MPI.Intracomm | None = None) -> None:
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
        """Wait until an exchange has ended: first without sleep, then with sleeps of a part of the time waited so far."""
        start = time.perf_counter()
        while not request.Test():
            waited = time.perf_counter() - start
            if waited > AWAKE_S:
                time.sleep(min(PAUSE * waited, LONGEST_PAUSE_S))

    def _staging(self, buffer: Tensor) -> Tensor:
        """Return `buffer` itself on a CPU, else its copy in pinned host memory."""
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

    def duplicate(self) -> Mpi:
        if self._mpi.Query_thread() < self._mpi.THREAD_MULTIPLE:
            raise UserError("this MPI lets only one thread exchange; leave --overlap out, or use an MPI built for THREAD_MULTIPLE.")
        return Mpi(self._world.Dup())


def _bytes(tensor: Tensor) -> np.ndarray:
    """The bytes of a tensor as a numpy array, without a copy."""
    return tensor.view(torch.uint8).numpy()
