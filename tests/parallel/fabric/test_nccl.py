"""Exchanges by NCCL, on emulated GPUs whose NCCL is gloo: that buffers there go to it, in its buckets, and come to what was to be summed.

What is not shown without GPUs: NCCL itself, and that it does not make the host wait.
"""

from __future__ import annotations

import os
import subprocess
import sys

import emulated_cuda
import pytest

from pykaldist.parallel.launch.job import free_port
from pykaldist.parallel.transport.addresses import LOOPBACK, LOOPBACK_INTERFACE, variables

pytestmark = pytest.mark.skipif(bool(emulated_cuda.missing), reason=emulated_cuda.missing)

THREE = """
import torch
import torch.distributed as dist
from emulated_cuda import EmulatedCuda
from pykaldist.errors import UserError
from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.fabric import torch_distributed
from pykaldist.parallel.fabric.by_node import ByNode
from pykaldist.parallel.fabric.torch_distributed import TorchDistributed
from pykaldist.parallel.strategies.base import rounding
from pykaldist.parallel.strategies.base.rounding import rounded_sum

operations = {}  # of each group of NCCL, by this process
new_group, all_reduce, broadcast, point_to_point = dist.new_group, dist.all_reduce, dist.broadcast, dist.P2POp
error = None


def made_group(ranks, backend, **options):
    made = new_group(ranks, backend="gloo", **options)
    if backend == "nccl":
        operations[made] = []
    return made


def taken(name, buffer, group):
    # The values of a buffer: NCCL takes those on GPUs alone, gloo all others.
    assert buffer.is_cuda == (group in operations), f"{name} of a buffer on {buffer.device}"
    if group not in operations:
        return buffer
    if error is not None:
        raise error
    operations[group].append(name)
    return buffer.host


dist.new_group = made_group
dist.all_reduce = lambda buffer, *how, group, **options: all_reduce(taken("sum", buffer, group), *how, group=group, **options)
dist.broadcast = lambda buffer, first, group: broadcast(taken("broadcast", buffer, group), first, group=group)
dist.P2POp = lambda kind, buffer, peer, group: point_to_point(kind, taken("point to point", buffer, group), peer, group)
torch_distributed.BUCKET, torch_distributed.NCCL_BUCKET = 2, 5


def on_gpu(*values):
    return torch.tensor(values).to("cuda")


async def work(fabric):
    total, left = None, None
    for values in contributions[:, rank]:
        total, left = await rounded_sum(fabric, values.to("cuda"), left)
    mean = contributions[0, rank].to("cuda")
    await fabric.average(mean, [1.0, 0.0, 3.0][rank])
    return total, mean


torch.set_num_threads(1)
contributions = torch.randn(4, 3, 12, generator=torch.Generator().manual_seed(0))
processes = TorchDistributed(timeout=100.0)
rank = processes.rank
with EmulatedCuda():
    processes.use_nccl()
    (nccl,) = operations
    for those in (processes, processes.duplicate(), processes.duplicate().duplicate()):
        # The first exchange is between the first two, and the third one takes no part.
        got = those.scatter([on_gpu(*[float(10 * rank + p)] * (2 + rank if {rank, p} == {0, 1} else 0)) for p in range(3)])
        assert [part.tolist() for part in got] == [[10.0 * p + rank] * (2 + p if {rank, p} == {0, 1} else 0) for p in range(3)], got
        for scale in (1.0, 0.5):
            those.sum(buffer := on_gpu(*[float(k * (1 + rank)) for k in range(12)]), scale)
            assert buffer.is_cuda and buffer.tolist() == [6.0 * scale * k for k in range(12)]
        those.broadcast(buffer := on_gpu(5.0 + rank, 6.0))
        assert buffer.tolist() == [5.0, 6.0]
        assert [part.tolist() for part in those.gather(on_gpu(*[rank] * (rank + 1)))] == [[0], [1, 1], [2, 2, 2]]
        those.sum(buffer := torch.tensor([1.0, 2.0]), 1.0)  # on the host
        assert buffer.tolist() == [3.0, 6.0]
        assert those.control([rank]).tolist() == [3.0]
    exchanged = ["point to point"] * (2 if rank < 2 else 0)
    sent_and_received = ["point to point"] * 4
    expected = ["sum", *exchanged, *["sum"] * 6, "broadcast", *sent_and_received]  # buckets of five: three of twelve values
    assert list(operations.values()) == [expected, expected, ["sum"], expected], operations  # the third was duplicated and no more

    operations.clear()
    outer = processes.group([0, 2]) if rank != 1 else processes.group([1])
    outer.sum(buffer := on_gpu(1.0 + rank, 2.0), 0.5)
    assert buffer.tolist() == ([2.0, 2.0] if rank != 1 else [1.0, 1.0])
    outer.broadcast(buffer := on_gpu(float(rank)))
    assert buffer.tolist() == [0.0 if rank != 1 else 1.0]
    got = outer.scatter([on_gpu(float(10 * rank + p)) for p in range(outer.size)])
    assert [part.item() for part in got] == ([10.0 * p + outer.rank for p in (0, 2)] if rank != 1 else [10.0])
    assert [names[:2] for names in operations.values()] == [["sum", "sum"]]
    operations[nccl] = []

    by_node = ByNode(processes, "aab")
    by_node.sum(buffer := contributions[0, rank].to("cuda"), 1.0)
    assert torch.equal(buffer.cpu(), (contributions[0, 0] + contributions[0, 1]) + contributions[0, 2])
    assert not operations[nccl] and [names[0] for names in list(operations.values())[2:]] == ["sum", "sum"]

    for rounding.BUCKET in (12, 5):
        host = Host(3, processes)
        ((total, mean),) = host.run([work(fabric) for fabric in host.fabrics])
        r, q = torch.zeros(3, 12), torch.zeros(12)
        for values in contributions:
            sent = (values + r).bfloat16().float()
            r = values + r - sent
            summed = q + sent[0] + sent[1] + sent[2]
            q = summed - summed.bfloat16().float()
        assert total.is_cuda and torch.equal(total.cpu(), summed.bfloat16().float())
        assert torch.allclose(mean.cpu(), (contributions[0, 0] + 3.0 * contributions[0, 2]) / 4.0)
    assert operations[nccl].count("sum") == 2 * 3

    error = RuntimeError("NCCL error in: NCCLUtils.hpp:7, invalid usage\\nLast error:\\nDuplicate GPU detected\\nframe 1\\nframe 2")
    before, processes._nccl = processes._nccl, None
    try:
        processes.use_nccl()
    except UserError as said:
        print("refused:", said)
    processes._nccl = before
    processes.close()
print("done")
"""


def test_three_processes(tmp_path, root):
    (tmp_path / "three.py").write_text(THREE)
    env = {**os.environ, **variables(LOOPBACK_INTERFACE), "PYTHONPATH": f"{root}:{root / 'tests' / 'cuda'}", "OMP_NUM_THREADS": "1",
           "MASTER_ADDR": LOOPBACK, "MASTER_PORT": str(free_port(LOOPBACK)), "WORLD_SIZE": "3", "PYTHONUNBUFFERED": "1"}
    running = [subprocess.Popen([sys.executable, str(tmp_path / "three.py")], env={**env, "RANK": str(rank)}, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True) for rank in range(3)]
    said = [one.communicate(timeout=240) for one in running]
    assert [one.returncode for one in running] == [0] * 3, "\n".join(err for _, err in said)
    for out, _ in said:
        assert out.splitlines() == [
            "refused: --fabric nccl: NCCL does not connect the GPUs of the 3 processes (NCCL error in: NCCLUtils.hpp:7, invalid usage "
            "Last error: Duplicate GPU detected frame 1); NCCL_DEBUG=INFO makes it say more, and --fabric gloo does without it.", "done"]
