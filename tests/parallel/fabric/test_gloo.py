"""Processes over gloo on this machine: sums in buckets and node by node, an exchange in bfloat16, and what becomes of one that fails."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pykaldist.errors import NotMetError, ProcessLostError
from pykaldist.parallel.fabric import torch_distributed
from pykaldist.parallel.fabric.torch_distributed import TorchDistributed
from pykaldist.parallel.launch.job import free_port
from pykaldist.parallel.transport.addresses import LOOPBACK, LOOPBACK_INTERFACE, variables

THREE = """
import datetime
import os
import time
import torch
from pykaldist.errors import ProcessLostError
from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.fabric import torch_distributed
from pykaldist.parallel.fabric.by_node import ByNode
from pykaldist.parallel.strategies.base import rounding
from pykaldist.parallel.strategies.base.rounding import rounded_sum

torch.set_num_threads(1)
processes = torch_distributed.TorchDistributed(timeout=100.0)
rank, values = processes.rank, torch.randn(3, 50, generator=torch.Generator().manual_seed(0))
sums = []
for torch_distributed.BUCKET in (7, 50):
    for those in (processes, ByNode(processes, "aab"), ByNode(processes, "aab").duplicate()):
        those.sum(buffer := values[rank].clone(), 1.0)
        assert torch.allclose(buffer, values.sum(0), atol=1e-5)
        sums.append(buffer)
assert torch.equal(sums[1], sums[4]) and torch.equal(sums[1], (values[0] + values[1]) + values[2])  # of two at a time: for any buckets


async def work(fabric):
    return await rounded_sum(fabric, values[rank], None)


(total, [(left, part_left)]), = Host(3, processes).run([work(fabric) for fabric in Host(3, processes).fabrics])
rounding.BUCKET = 20
(again, _), = Host(3, processes).run([work(fabric) for fabric in Host(3, processes).fabrics])
assert torch.equal(again, total)
sent = values.bfloat16().float()
assert torch.equal(total, (sent[0] + sent[1] + sent[2]).bfloat16().float()) and torch.equal(left, values[rank] - sent[rank])

async def in_parts(fabric):
    made, slices = torch.full((50,), torch.nan), [slice(30, 50), slice(0, 30)]

    def work(parts):
        made[30:] = values[rank, 30:]
        parts.ready(0)
        until = time.monotonic() + 100.0
        while not torch.equal(made[30:], values[0, 30:] + values[1, 30:]):  # the sum comes while this process computes
            assert time.monotonic() < until and made[:30].isnan().all()
            time.sleep(0.01)
        made[:30] = values[rank, :30]
        return rank

    found, tickets = await fabric.compute_parts(work, slices, lambda k: fabric.sum(made[slices[k]]))
    for ticket in tickets:
        await fabric.finish(ticket)
    assert found == rank and torch.equal(made, values[0] + values[1])


both, pair = [processes.group([0, 1]) if rank < 2 else None for _ in range(2)]
if rank < 2:
    host = Host(2, both)
    host.run([in_parts(fabric) for fabric in host.fabrics])
processes.barrier()
if rank == 2:
    os._exit(0)
torch.distributed.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=1), pair._group)
if rank == 0:  # process 1 does not come to this one
    try:
        pair.sum(values[0], 1.0)
    except ProcessLostError as error:
        print("timed out:", error)
both.barrier()
try:
    for _ in range(2):
        processes.sum(values[0].clone(), 1.0)
except ProcessLostError as error:
    print("lost:", error)
os._exit(0)
"""


def test_three_processes(tmp_path, root):
    (tmp_path / "three.py").write_text(THREE)
    env = {**os.environ, **variables(LOOPBACK_INTERFACE), "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", "MASTER_ADDR": LOOPBACK,
           "MASTER_PORT": str(free_port(LOOPBACK)), "WORLD_SIZE": "3", "PYTHONUNBUFFERED": "1"}
    running = [subprocess.Popen([sys.executable, str(tmp_path / "three.py")], env={**env, "RANK": str(rank)}, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True) for rank in range(3)]
    said = [one.communicate(timeout=240) for one in running]
    assert [one.returncode for one in running] == [0] * 3, said
    assert said[0][0].count("timed out: ") == 1 and said[0][0].count("lost: ") == said[1][0].count("lost: ") == 1, said


def test_processes_that_do_not_meet(monkeypatch):
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": LOOPBACK, "MASTER_PORT": str(free_port(LOOPBACK))}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(NotMetError, match=r"^process 1 of 2 processes has not come to meet the others within 0.5 s; there is process 0 on"):
        TorchDistributed(timeout=1000.0, meeting=0.5)
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(NotMetError, match=r"^process 0 of 2 processes has not come .*; they meet at 127.0.0.1, port \d+$"):
        TorchDistributed(timeout=1000.0, meeting=0.5)


def test_a_fault_of_the_device_is_no_lost_process():
    """Running again, as after a lost process, would meet it again."""
    with pytest.raises(ProcessLostError, match="Connection closed by peer"), torch_distributed._exchange():
        raise RuntimeError("[gloo] Connection closed by peer [127.0.0.1]:1234")
    with pytest.raises(ProcessLostError, match="NCCL error"), torch_distributed._exchange():
        raise RuntimeError("NCCL error: remote process exited; CUDA error: peer access")
    with pytest.raises(RuntimeError, match="illegal memory access") as found, torch_distributed._exchange():
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    assert not isinstance(found.value, ProcessLostError)
