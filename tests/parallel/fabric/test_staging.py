"""Buffers on a GPU, played by tensors that say so, go through pinned host memory where the fabric takes none from a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import mpi4py
import pytest
import torch

from pykaldist.parallel.fabric import mpi
from pykaldist.parallel.fabric.staging import Staging, put_back
from pykaldist.parallel.launch.commands import mpiexec
from pykaldist.parallel.launch.job import free_port
from pykaldist.parallel.transport.addresses import LOOPBACK, LOOPBACK_INTERFACE, variables

PAIR = """
import sys
import torch
import torch.distributed as dist
from pykaldist.parallel.fabric import mpi, torch_distributed
from pykaldist.parallel.fabric.mpi import Mpi
from pykaldist.parallel.fabric.torch_distributed import TorchDistributed

class Event:
    def record(self):
        self.recorded = True

    def synchronize(self):
        assert self.recorded

torch.cuda.Event = Event
mpi.BUCKET = torch_distributed.BUCKET = 4

class OnDevice(torch.Tensor):
    is_cuda = True
    __torch_function__ = torch._C._disabled_torch_function_impl

def on_device(*values):
    return torch.tensor(values).as_subclass(OnDevice)

pinned, empty = [], torch.empty

def watched_empty(*size, pin_memory=False, **options):
    if pin_memory:
        pinned.append(size)
    return empty(*size, **options)

def on_host_alone(function, place):
    def checked(*arguments, **options):
        assert not arguments[place].is_cuda, f"{function.__name__} of a buffer on a device"
        return function(*arguments, **options)
    return checked

torch.empty = watched_empty
for name, place in (("all_reduce", 0), ("broadcast", 0), ("P2POp", 1)):
    setattr(dist, name, on_host_alone(getattr(dist, name), place))

processes = TorchDistributed() if sys.argv[1] == "gloo" else Mpi()
rank = processes.rank
for those in (processes, processes.duplicate(), processes.group([0, 1])):
    buffer = on_device(1.0 + rank, 2.0, 3.0)
    those.sum(buffer, 0.5)
    assert buffer.tolist() == [1.5, 2.0, 3.0]
    for make in (on_device, lambda *values: torch.tensor(values)):  # five buckets
        buffer = make(*[float(k * (1 + rank)) for k in range(18)])
        those.sum(buffer, 2.0)
        assert buffer.tolist() == [6.0 * k for k in range(18)]
    those.broadcast(buffer := on_device(5.0 + rank, 6.0))
    assert buffer.tolist() == [5.0, 6.0]
    got = those.scatter([on_device(*[10 * rank + p] * (1 + rank + 2 * p)) for p in range(2)])
    assert [part.tolist() for part in got] == [[10 * p + rank] * (1 + p + 2 * rank) for p in range(2)], got
    assert [part.tolist() for part in those.gather(on_device(*[rank] * (rank + 2)))] == [[0, 0], [1, 1, 1]]
    again = those.gather(on_device(*[rank + 7] * 2))
    those.gather(on_device(0, 0))
    assert [part.tolist() for part in again] == [[7, 7], [8, 8]]  # they do not lie in what is used again
assert pinned
if sys.argv[1] == "mpi":
    pinned.clear()
    torch.cuda.current_stream = lambda device: torch  # torch.synchronize
    torch.synchronize = lambda: None
    processes.takes_cuda = True
    for those in (processes, processes.duplicate(), processes.group([0, 1])):
        buffer = on_device(1.0 + rank, 2.0)
        those.sum(buffer, 0.5)
        assert buffer.tolist() == [1.5, 2.0] and not pinned
processes.close()
print("done")
"""


@pytest.mark.parametrize("fabric", ["gloo", "mpi"])
def test_buffers_on_a_device(fabric, tmp_path, root):
    (tmp_path / "pair.py").write_text(PAIR)
    env = {**os.environ, **variables(LOOPBACK_INTERFACE), "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", "MASTER_ADDR": LOOPBACK,
           "MASTER_PORT": str(free_port(LOOPBACK)), "WORLD_SIZE": "2"}
    words = [sys.executable, *(["-m", "mpi4py"] * (fabric == "mpi")), str(tmp_path / "pair.py"), fabric]
    starts = [{"RANK": "0"}, {"RANK": "1"}]
    if fabric == "mpi":
        words, starts = [str(mpiexec()), "-n", "2", *words], [{}]
    running = [subprocess.Popen(words, env={**env, **own}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for own in starts]
    said = [one.communicate(timeout=120) for one in running]
    assert [one.returncode for one in running] == [0] * len(running), said
    assert sum(out.count("done") for out, _ in said) == 2


@pytest.mark.gpu
def test_buckets_go_to_the_host_and_back_side_by_side(cuda):
    """The host waits for each bucket's own event, and for nothing else; the memory is used again."""
    staging = Staging()
    for length in (10, 7, 12):
        buffer, seen = torch.arange(float(length), device="cuda"), []
        for factor, (bucket, copy) in enumerate(staging.buckets(buffer, 4), 2):
            seen += copy.tolist()
            put_back(bucket, copy.mul_(factor))
        if cuda is not None:
            assert all(what.startswith("event") for what in cuda.synchronisations), cuda.synchronisations
        assert seen == [float(k) for k in range(length)]
        assert buffer.tolist() == [k * (2.0 + k // 4) for k in range(length)]
        if cuda is not None:
            cuda.reset()


@pytest.mark.parametrize(("kinds", "query", "aware"), [
    ("mpi,system", 0, False), ("mpi,system", None, False), (None, None, False), ("mpi,system,cuda:device", None, True),
    ("cuda", 0, True), ("mpi,rocm:device,notcuda", 0, False), ("mpi,system", 1, True), (None, 1, True)])
def test_what_an_mpi_says_of_itself(monkeypatch, kinds, query, aware):
    info = SimpleNamespace(Get=lambda name: kinds if name == "mpi_memory_alloc_kinds" else None, Free=lambda: None)
    world = SimpleNamespace(Get_info=lambda: info)
    monkeypatch.setattr(mpi4py, "MPI", SimpleNamespace(COMM_WORLD=world, __file__="libmpi.so"), raising=False)
    functions = {} if query is None else {"MPIX_Query_cuda_support": lambda: query}
    monkeypatch.setattr(mpi.ctypes, "CDLL", lambda path: SimpleNamespace(**functions) if path == "libmpi.so" else None)
    assert mpi.cuda_aware() is aware
