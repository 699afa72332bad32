"""The processes of a torch.distributed job: NCCL between GPUs, gloo between CPUs.

Rank, size and the address where they meet come from the environment, as torchrun sets it: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT. Where
torchrun does not listen at that address, process 0 listens there, and only there: PyTorch by itself would listen on all network interfaces.
"""

from __future__ import annotations

import atexit
import contextlib
import copy
import datetime
import os
import socket
from collections.abc import Iterator, Sequence

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from pykaldist.errors import ProcessLostError, UserError
from pykaldist.parallel.fabric.processes import SplittableProcesses


@contextlib.contextmanager
def _exchange() -> Iterator[None]:
    """Turn the error of a collective operation into ProcessLostError.

    gloo and NCCL raise RuntimeError where a process has ended: torch has no type of its own for that.
    """
    try:
        yield
    except torch.cuda.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise ProcessLostError(str(error)) from error


class TorchDistributed(SplittableProcesses):
    """The processes of a torch.distributed group. `backend` is nccl or gloo; with nccl, control values still go through gloo."""

    def __init__(self, backend: str, timeout: float = 1800.0) -> None:
        backend, limit = "cpu:gloo,cuda:nccl" if backend == "nccl" else "gloo", datetime.timedelta(seconds=timeout)
        with _exchange():
            if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
                dist.init_process_group(backend, timeout=limit)
            else:
                rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
                dist.init_process_group(backend, timeout=limit, store=_store(rank, size, limit), rank=rank, world_size=size)
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self._group = dist.group.WORLD
        self._members = list(range(self.size))  # in the job
        self._all = [self]  # and its duplicates and groups
        atexit.register(self._end)

    def _end(self) -> None:
        """Release the process groups before Python ends: otherwise their threads would end the process with SIGABRT."""
        for one in self._all:
            one._group = None
        if dist.is_initialized():
            dist.destroy_process_group()

    def close(self) -> None:
        super().close()
        self._end()
        atexit.unregister(self._end)

    @_exchange()
    def sum(self, buffer: Tensor, scale: float) -> None:
        dist.all_reduce(buffer, group=self._group)
        if scale != 1.0:
            buffer.mul_(scale)

    @_exchange()
    def control(self, values: Sequence[float] | np.ndarray, largest: bool = False) -> np.ndarray:
        result = torch.from_numpy(np.array(values, dtype=np.float64))
        dist.all_reduce(result, dist.ReduceOp.MAX if largest else dist.ReduceOp.SUM, group=self._group)
        return result.numpy()

    @_exchange()
    def scatter(self, parts: list[Tensor]) -> list[Tensor]:
        counts = np.zeros((self.size, self.size))
        counts[self.rank] = [len(part) for part in parts]
        incoming = self.control(counts.ravel()).reshape(self.size, self.size)[:, self.rank].astype(int)
        received = [torch.empty(int(n), dtype=parts[0].dtype, device=parts[0].device) for n in incoming]
        received[self.rank].copy_(parts[self.rank])
        others = [p for p in range(self.size) if p != self.rank]
        operations = [dist.P2POp(dist.isend, parts[p].contiguous(), self._members[p], self._group) for p in others if len(parts[p])]
        operations += [dist.P2POp(dist.irecv, received[p], self._members[p], self._group) for p in others if len(received[p])]
        for handle in dist.batch_isend_irecv(operations) if operations else ():
            handle.wait()
        return received

    def gather(self, buffer: Tensor) -> list[Tensor]:
        return self.scatter([buffer] * self.size)

    @_exchange()
    def broadcast(self, buffer: Tensor) -> None:
        dist.broadcast(buffer, self._members[0], group=self._group)

    @_exchange()
    def group(self, members: Sequence[int]) -> TorchDistributed:
        other = copy.copy(self)
        other._members = [self._members[p] for p in members]
        other.rank, other.size = members.index(self.rank), len(members)
        other._group = dist.new_group(other._members, use_local_synchronization=True)
        self._all.append(other)
        return other

    @_exchange()
    def duplicate(self) -> TorchDistributed:
        other = copy.copy(self)
        other._group = dist.new_group()
        self._all.append(other)
        return other


def _store(rank: int, size: int, limit: datetime.timedelta) -> dist.Store:
    """The TCP store through which the processes meet. Process 0 listens. Raises UserError where it cannot."""
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if rank:
        return dist.TCPStore(host, port, size, timeout=limit)
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    if str(address[0]).startswith("127.") and not host.startswith(("127.", "localhost")):
        address = ("", port)  # some systems give a host's own name a loopback address, which others do not reach
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError as error:
        raise UserError(f"process 0 on {socket.gethostname()} cannot listen at MASTER_ADDR={host} MASTER_PORT={port} ({error.strerror}); "
                        "it has to be an address of this host, and a port that is free.") from error
    return dist.TCPStore(host, port, size, is_master=True, timeout=limit, multi_tenant=True, master_listen_fd=listener.detach())
