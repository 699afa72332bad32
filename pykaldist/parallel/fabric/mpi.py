"""The processes of an MPI job, by mpi4py and the MPI that it was installed with.

Buffers on a CPU are passed to MPI in place. Buffers on a GPU go through pinned host memory. Those that are summed are passed in place where
the MPI of every process says that it is CUDA-aware (`cuda_aware`; `takes_cuda` is set then). A sum through host memory is made in buckets,
so that all processes have to sum in the same way.

MPI waits by spinning, which takes the core from whoever computes on it. So processes first meet by a small exchange that does not block,
and a process that comes early sleeps (`_wait`). The exchange that blocks begins when all are there. MPI still spins while it waits for the
pieces of a buffer, but the operating system lets others run then.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from pykaldist.errors import ProcessLostError, UserError
from pykaldist.parallel.fabric.processes import SplittableProcesses
from pykaldist.parallel.fabric.staging import Staging, in_place, put_back

if TYPE_CHECKING:
    from mpi4py import MPI

# An all-reduce in buckets that stay in the processor's cache while they are added is faster than one of the whole buffer.
BUCKET = 1 << 22  # values
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


def vendor() -> str:
    """The name of mpi4py's MPI, as MPICH. MPI is loaded then, and starts when the first `Mpi` is made.

    Raises UserError where mpi4py finds no MPI.
    """
    import mpi4py

    if "mpi4py.MPI" not in sys.modules:
        mpi4py.rc(initialize=False, finalize=True)
    try:
        from mpi4py import MPI
    except RuntimeError as error:
        raise UserError(f"mpi4py finds no MPI ({str(error).splitlines()[0]}); install mpich, or use --fabric gloo.") from error
    return MPI.get_vendor()[0]


def cuda_aware() -> bool:
    """True where this MPI says that it takes buffers on a GPU.

    It says so by the info of its communicators (MPI 4.1's mpi_memory_alloc_kinds), or by MPIX_Query_cuda_support, which Open MPI and MPICH
    have.
    """
    from mpi4py import MPI

    info = MPI.COMM_WORLD.Get_info()
    kinds = info.Get("mpi_memory_alloc_kinds") or ""
    info.Free()
    if any(kind.partition(":")[0] == "cuda" for kind in kinds.split(",")):
        return True
    query = getattr(ctypes.CDLL(MPI.__file__), "MPIX_Query_cuda_support", None)
    return query is not None and bool(query())


class Mpi(SplittableProcesses):
    """The processes of an MPI communicator: MPI.COMM_WORLD, or a duplicate of it.

    `takes_cuda`: the MPI of every process takes buffers on a GPU.
    """

    def __init__(self, world: MPI.Intracomm | None = None, takes_cuda: bool = False) -> None:
        from mpi4py import MPI

        if not MPI.Is_initialized():
            MPI.Init_thread()
        self._mpi, self._world = MPI, MPI.COMM_WORLD if world is None else world
        self.rank, self.size = self._world.Get_rank(), self._world.Get_size()
        self.takes_cuda = takes_cuda
        self._sent, self._received = Staging(), Staging()

    @_exchange()
    def sum(self, buffer: Tensor, scale: float) -> None:
        self._wait(self._world.Ibarrier())
        if buffer.is_cuda and self.takes_cuda:
            torch.cuda.current_stream(buffer.device).synchronize()  # what was written to it is there
            self._world.Allreduce(self._mpi.IN_PLACE, buffer)
            if scale != 1.0:
                buffer.mul_(scale)
            return
        for bucket, copy in self._sent.buckets(buffer, BUCKET) if buffer.is_cuda else in_place(buffer, BUCKET):
            values = copy.numpy()
            self._world.Allreduce(self._mpi.IN_PLACE, values)
            if scale != 1.0:
                values *= scale
            put_back(bucket, copy)

    @staticmethod
    def _wait(request: MPI.Request) -> None:
        """Wait until an exchange has ended: first without sleep, then with sleeps of a part of the time waited so far."""
        start = time.perf_counter()
        while not request.Test():
            waited = time.perf_counter() - start
            if waited > AWAKE_S:
                time.sleep(min(PAUSE * waited, LONGEST_PAUSE_S))

    def _on_host(self, buffer: Tensor) -> Tensor:
        """Return `buffer` itself on a CPU, else its copy in pinned host memory."""
        return self._sent.copied(buffer) if buffer.is_cuda else buffer

    def _room(self, size: int, like: Tensor) -> Tensor:
        """Host memory for `size` values that are received for the device of `like`; its own, or pinned memory that is used again."""
        return self._received.room(size, like.dtype) if like.is_cuda else torch.empty(size, dtype=like.dtype)

    @_exchange()
    def control(self, values: Sequence[float] | np.ndarray, largest: bool = False) -> np.ndarray:
        result = np.array(values, dtype=np.float64)
        self._wait(self._world.Iallreduce(self._mpi.IN_PLACE, result, self._mpi.MAX if largest else self._mpi.SUM))
        return result

    @_exchange()
    def scatter(self, parts: list[Tensor]) -> list[Tensor]:
        sent = self._on_host(torch.cat(parts))
        counts = np.array([len(part) for part in parts], dtype=np.int64)
        incoming = np.empty_like(counts)
        self._wait(self._world.Ialltoall(counts, incoming))
        received = self._room(int(incoming.sum()), parts[0])
        self._world.Alltoallv([_bytes(sent), counts * sent.itemsize], [_bytes(received), incoming * sent.itemsize])
        return list(received.to(parts[0].device, copy=parts[0].is_cuda).split(incoming.tolist()))

    @_exchange()
    def gather(self, buffer: Tensor) -> list[Tensor]:
        sent = self._on_host(buffer.contiguous())
        counts = np.empty(self.size, dtype=np.int64)
        own = np.array([len(sent)], dtype=np.int64)
        self._wait(self._world.Iallgather(own, counts))
        received = self._room(int(counts.sum()), buffer)
        self._world.Allgatherv(_bytes(sent), [_bytes(received), counts * sent.itemsize])
        return list(received.to(buffer.device, copy=buffer.is_cuda).split(counts.tolist()))

    @_exchange()
    def broadcast(self, buffer: Tensor) -> None:
        host = self._on_host(buffer)
        self._wait(self._world.Ibarrier())
        self._world.Bcast(_bytes(host))
        if host is not buffer:
            buffer.copy_(host)

    @_exchange()
    def group(self, members: Sequence[int]) -> Mpi:
        everyone = self._world.Get_group()
        some = everyone.Incl(list(members))
        found = Mpi(self._world.Create_group(some, members[0]), self.takes_cuda)
        some.Free()
        everyone.Free()
        return found

    def duplicate(self) -> Mpi:
        if self._mpi.Query_thread() < self._mpi.THREAD_MULTIPLE:
            raise UserError("this MPI lets only one thread exchange; leave --overlap out, or use an MPI built for THREAD_MULTIPLE.")
        return Mpi(self._world.Dup(), self.takes_cuda)


def _bytes(tensor: Tensor) -> np.ndarray:
    """The bytes of a tensor as a numpy array, without a copy."""
    return tensor.view(torch.uint8).numpy()
