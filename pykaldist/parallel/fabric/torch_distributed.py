"""The processes of a torch.distributed job: they meet by gloo, which exchanges what is on CPUs; NCCL exchanges between GPUs.

gloo has not all operations for buffers on a GPU: none from one process to another. So where there is no NCCL, buffers on a GPU are
exchanged through pinned host memory.

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
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from pykaldist.errors import NotMetError, ProcessLostError, UserError, missing_sentence
from pykaldist.parallel.fabric.processes import SplittableProcesses
from pykaldist.parallel.fabric.staging import Staging, in_place, put_back

# Values of a bucket. By gloo, buckets of 1 to 4 Mi values, two under way, take the time of one sum of the whole (two processes on a CPU).
# By NCCL each bucket costs a launch and a round of latencies: they are as large as those of PyTorch's DistributedDataParallel, 25 MiB.
BUCKET = 1 << 20
NCCL_BUCKET = 25 << 18
UNDER_WAY = 2  # buckets that are summed at a time
LOOK_S = 0.05  # between two looks at who has come


@contextlib.contextmanager
def _exchange() -> Iterator[None]:
    """Turn the error of a collective operation into ProcessLostError.

    gloo and NCCL raise RuntimeError where a process has ended, or does not come within the timeout: torch has no one type of its own for
    that. A fault of this process's own device, such as an illegal address, is none of the others.
    """
    try:
        yield
    except torch.cuda.OutOfMemoryError:
        raise
    except RuntimeError as error:
        if "CUDA error" in str(error) and "NCCL" not in str(error):
            raise
        raise ProcessLostError(str(error)) from error


class TorchDistributed(SplittableProcesses):
    """The processes of a torch.distributed group. `timeout` is that of an exchange, `meeting` that of their start, in seconds.

    Raises NotMetError where nobody new has come within `meeting`, and some are missing.
    """

    def __init__(self, timeout: float = 1800.0, meeting: float = 60.0) -> None:
        self._limit = limit = datetime.timedelta(seconds=timeout)
        with _exchange():
            if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
                dist.init_process_group("gloo", timeout=limit)
            else:
                rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
                store = _store(rank, size, meeting)
                dist.init_process_group("gloo", timeout=limit, store=store, rank=rank, world_size=size)
                store.set_timeout(limit)
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self._group: dist.ProcessGroup | None = dist.group.WORLD
        self._nccl: dist.ProcessGroup | None = None
        self._members = list(range(self.size))  # in the job
        self._all = [self]  # and its duplicates and groups
        self._sent, self._received = Staging(), Staging()
        atexit.register(self._end)

    def use_nccl(self) -> None:
        """Exchange buffers on GPUs by NCCL from now on. Collective. Each process has set its own device before (torch.cuda.set_device).

        Raises UserError where NCCL does not connect them.
        """
        try:
            self._nccl = self._connected(self._members)
        except ProcessLostError as error:
            said = " ".join(str(error).splitlines()[:4])  # the kind of error, and NCCL's own words
            raise UserError(f"--fabric nccl: NCCL does not connect the GPUs of the {self.size} processes ({said}); NCCL_DEBUG=INFO makes "
                            "it say more, and --fabric gloo does without it.") from error

    @_exchange()
    def _connected(self, ranks: list[int], **options: Any) -> dist.ProcessGroup:
        """A new process group for NCCL, whose processes are connected before it is used.

        torch makes it with the group's first operation, in which all of its processes have to take part. In point-to-point operations
        (`scatter`) not all do.
        """
        group = dist.new_group(ranks, timeout=self._limit, backend="nccl", **options)
        ones = torch.ones(1, device="cuda")
        dist.all_reduce(ones, group=group)
        if ones.item() != len(ranks):  # the host waits, so that what fails does so here
            raise RuntimeError(f"a sum over {len(ranks)} processes was {ones.item():g} in place of {len(ranks)}")
        return group

    def _end(self) -> None:
        """Release the process groups before Python ends: otherwise their threads would end the process with SIGABRT."""
        for one in self._all:
            one._group = one._nccl = None
        if dist.is_initialized():
            dist.destroy_process_group()

    def close(self) -> None:
        super().close()
        self._end()
        atexit.unregister(self._end)

    def _is_staged(self, buffer: Tensor) -> bool:
        """True for a buffer that is exchanged through host memory."""
        return buffer.is_cuda and self._nccl is None

    def _group_of(self, buffer: Tensor) -> dist.ProcessGroup | None:
        """The group that exchanges a buffer."""
        return self._nccl if buffer.is_cuda else self._group

    @_exchange()
    def sum(self, buffer: Tensor, scale: float) -> None:
        size = NCCL_BUCKET if buffer.is_cuda and self._nccl is not None else BUCKET
        buckets = self._sent.buckets(buffer, size) if self._is_staged(buffer) else in_place(buffer, size)
        under_way: deque[tuple[dist.Work, Tensor, Tensor]] = deque()

        def finish_one() -> None:
            work, bucket, exchanged = under_way.popleft()
            work.wait()
            if scale != 1.0:
                exchanged.mul_(scale)
            put_back(bucket, exchanged)

        for bucket, exchanged in buckets:
            under_way.append((dist.all_reduce(exchanged, group=self._group_of(exchanged), async_op=True), bucket, exchanged))
            if len(under_way) == UNDER_WAY:
                finish_one()
        while under_way:
            finish_one()

    @_exchange()
    def control(self, values: Sequence[float] | np.ndarray, largest: bool = False) -> np.ndarray:
        result = torch.from_numpy(np.array(values, dtype=np.float64))
        dist.all_reduce(result, dist.ReduceOp.MAX if largest else dist.ReduceOp.SUM, group=self._group)
        return result.numpy()

    @_exchange()
    def scatter(self, parts: list[Tensor]) -> list[Tensor]:
        counts = np.zeros((self.size, self.size))
        counts[self.rank] = [len(part) for part in parts]
        incoming = self.control(counts.ravel()).reshape(self.size, self.size)[:, self.rank].astype(int).tolist()
        device, staged = parts[0].device, self._is_staged(parts[0])
        if staged:
            parts = list(self._sent.copied(torch.cat(parts)).split([len(part) for part in parts]))
            received = list(self._received.room(sum(incoming), parts[0].dtype).split(incoming))
        else:
            received = [torch.empty(n, dtype=parts[0].dtype, device=device) for n in incoming]
        received[self.rank].copy_(parts[self.rank])
        others, group = [p for p in range(self.size) if p != self.rank], self._group_of(parts[0])
        operations = [dist.P2POp(dist.isend, parts[p].contiguous(), self._members[p], group) for p in others if len(parts[p])]
        operations += [dist.P2POp(dist.irecv, received[p], self._members[p], group) for p in others if len(received[p])]
        for handle in dist.batch_isend_irecv(operations) if operations else ():
            handle.wait()
        return list(torch.cat(received).to(device).split(incoming)) if staged else received

    def gather(self, buffer: Tensor) -> list[Tensor]:
        return self.scatter([buffer] * self.size)

    @_exchange()
    def broadcast(self, buffer: Tensor) -> None:
        exchanged = self._sent.copied(buffer) if self._is_staged(buffer) else buffer
        dist.broadcast(exchanged, self._members[0], group=self._group_of(exchanged))
        if exchanged is not buffer:
            buffer.copy_(exchanged)

    @_exchange()
    def group(self, members: Sequence[int]) -> TorchDistributed:
        mine = [self._members[p] for p in members]
        other = self._another(mine, use_local_synchronization=True)
        other._members, other.rank, other.size = mine, members.index(self.rank), len(members)
        return other

    @_exchange()
    def duplicate(self) -> TorchDistributed:
        return self._another(self._members)

    def _another(self, ranks: list[int], **options: Any) -> TorchDistributed:
        """The processes `ranks` of the job with groups and host memory of their own."""
        other = copy.copy(self)
        other._group = dist.new_group(ranks, timeout=self._limit, backend="gloo", **options)
        other._nccl = None if self._nccl is None else self._connected(ranks, **options)
        other._sent, other._received = Staging(), Staging()
        self._all.append(other)
        return other


def _store(rank: int, size: int, seconds: float) -> dist.Store:
    """The TCP store through which the processes have met, of which one has come in so many seconds. Process 0 listens.

    Raises UserError where it cannot, and NotMetError where processes are missing.
    """
    host, port, limit = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), datetime.timedelta(seconds=seconds)
    own = f"process {rank} on {socket.gethostname()} (pid {os.getpid()})"
    try:
        store = _listen(host, port, size, limit) if rank == 0 else dist.TCPStore(host, port, size, timeout=limit, wait_for_workers=False)
    except RuntimeError as error:
        raise NotMetError(f"{missing_sentence(size, [0], {rank: own}, seconds)}; they meet at {host}, port {port}") from error
    with _exchange():
        store.set(f"came {rank}", own)
        come, since = store.add("come", 1), time.monotonic()
        while come < size:
            time.sleep(LOOK_S)
            before, come = come, store.add("come", 0)
            if come > before:
                since = time.monotonic()
            elif time.monotonic() > since + seconds:
                known = {one: store.get(f"came {one}").decode() for one in range(size) if store.check([f"came {one}"])}
                raise NotMetError(missing_sentence(size, [one for one in range(size) if one not in known], known, seconds))
    return store


def _listen(host: str, port: int, size: int, limit: datetime.timedelta) -> dist.Store:
    """The TCP store of process 0, which listens. Raises UserError where it cannot."""
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
    return dist.TCPStore(host, port, size, is_master=True, timeout=limit, wait_for_workers=False, multi_tenant=True,
                         master_listen_fd=listener.detach())
