"""A job: the nodes that workers are on, and the host that runs them."""

from __future__ import annotations

import json
import os
import socket
import threading

import pytest
import torch

from pykaldist.errors import UserError
from pykaldist.parallel.engines.concurrent import ConcurrentHost
from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.engines.simulation import Simulation
from pykaldist.parallel.fabric.clock import DeviceClock
from pykaldist.parallel.fabric.mpi import Mpi
from pykaldist.parallel.launch import job
from pykaldist.parallel.launch.job import JobOptions, open_job, open_processes
from pykaldist.parallel.launch.placement import Placement
from pykaldist.parallel.strategies.base.registry import make_strategy, strategy_options


@pytest.mark.parametrize(("workers", "names", "expected"), [
    (4, ["a", "a", "b", "b"], 2), (4, ["a", "b"], 2), (8, ["a", "a", "b", "b"], 4), (3, ["a", "a", "b"], 0), (4, ["a", "b", "a", "b"], 0),
    (5, ["a", "b"], 0), (3, ["a"], 3)])
def test_workers_of_a_node(workers, names, expected):
    """0 where nodes have different numbers of them, or they do not follow each other."""
    host = Host(workers)
    host.bounds = [workers * p // len(names) for p in range(len(names) + 1)]
    assert job._node_size(host, names) == expected


def opened(strategy: str, cluster: str = "", fabric: str | None = None, **own: str) -> Host:
    options = JobOptions(ngpu=2, strategy=strategy, fabric=fabric, cluster=cluster, device="cpu", num_threads=1)
    return open_job(options, make_strategy(strategy, strategy_options(strategy)(**own))).host


def test_which_host_runs_the_workers():
    assert type(opened("ssgd")) is Host and type(opened("adpsgd", pattern="delay-by-one")) is Host
    assert type(opened("adpsgd")) is ConcurrentHost and type(opened("asgd")) is ConcurrentHost
    assert type(opened("ssgd", "k20-infiniband")) is Simulation and type(opened("asgd", fabric="virtual")) is Simulation


def test_failures_need_a_fault_tolerant_strategy(tmp_path):
    cluster = {"name": "c", "description": "", "nodes": 1, "devices": 2, "compute": {"minibatch_seconds": 1.0},
               "within": {"bandwidth": 1e9}, "failures": [{"worker": 1, "at": 3}],
               "workload": {"network": "", "parameters": 1, "minibatch_size": 1, "frames": 1}}
    (tmp_path / "c.json").write_text(json.dumps(cluster))
    assert opened("adpsgd", str(tmp_path / "c.json")).cluster.failures[0].at == 3.0
    for strategy, own in (("ssgd", {}), ("adpsgd", {"pattern": "delay-by-one"}), ("hadpsgd", {"pattern": "delay-by-one"})):
        with pytest.raises(UserError, match=f"--strategy {strategy} does not survive that"):
            opened(strategy, str(tmp_path / "c.json"), **own)


class One(Mpi):
    """Process 1 of an MPI job, whose process 0 is alike and sees the GPU of `other`."""

    def __init__(self) -> None:
        self.rank, self.size, self.takes_cuda = 1, 2, None

    def barrier(self) -> None:
        """Process 0 has come."""


class Torch:
    """What becomes of it over torch.distributed. `calls`: what was called, with the current device."""

    calls: tuple[str, ...] = ()
    rank, size = 1, 2

    def __init__(self, timeout: float, meeting: float) -> None:
        Torch.calls = ("meet",)

    def use_nccl(self) -> None:
        Torch.calls += (f"nccl on {current[-1]}",)


current: list[str] = []


@pytest.fixture
def two(monkeypatch):
    """`two(devices, other, nccl, cuda_mpi)`: makes this process that of `One`, which sees GPUs of these names."""

    def make(devices: list[str], other: list[str], nccl: bool = True, cuda_mpi: bool = False) -> None:
        def both(processes, thing):
            own_of_first = {"devices": other, "MASTER_PORT": "4321"}
            first = {name: own_of_first.get(name, value) for name, value in thing.items()}
            return [json.loads(json.dumps(one)) for one in (first, thing)]

        current[:] = ["none"]
        for name in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"):
            monkeypatch.delenv(name, raising=False)
        for name, value in {"started_by": lambda: "mpi", "Mpi": One, "TorchDistributed": Torch, "allgather_json": both,
                            "num_visible": lambda: len(devices), "device_name": devices.__getitem__, "has_nccl": lambda: nccl,
                            "cuda_aware": lambda: cuda_mpi}.items():
            monkeypatch.setattr(job, name, value)
        monkeypatch.setattr(torch.cuda, "set_device", lambda device: current.append(str(device)))

    return make


@pytest.mark.parametrize("devices", [["GPU-0", "GPU-1"], ["GPU-1"]], ids=["all visible", "one visible a task"])
def test_gpus_of_their_own_go_on_over_nccl(two, devices):
    """At an address that process 0 has told; on the device that is current before NCCL looks for it."""
    two(devices, ["GPU-0", "GPU-1"][: len(devices)])
    processes, placement = open_processes("auto", None)
    own = f"cuda:{len(devices) - 1}"
    assert placement.devices == ("cuda:0", own) and placement.fabric == "nccl" and not placement.staged
    assert isinstance(processes, Torch) and Torch.calls == ("meet", f"nccl on {own}")
    assert {name: os.environ[name] for name in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")} == {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "4321", "RANK": "1", "WORLD_SIZE": "2"}


@pytest.mark.parametrize(("able", "takes"), [({"nccl": False}, False), ({"nccl": False, "cuda_mpi": True}, True)])
def test_mpi_is_given_buffers_on_a_gpu_where_it_is_cuda_aware(two, able, takes):
    two(["GPU-0", "GPU-1"], ["GPU-0", "GPU-1"], **able)
    processes, placement = open_processes("auto", None)
    assert type(processes) is One and processes.takes_cuda is takes and placement.staged is not takes and current == ["none", "cuda:1"]


def test_an_mpiexec_of_another_mpi_than_mpi4pys_is_found(two, monkeypatch):
    two([], [])
    alone = One()
    alone.size = 1
    monkeypatch.setattr(job, "Mpi", lambda: alone)
    monkeypatch.setenv("PMI_SIZE", "2")
    with pytest.raises(UserError, match=r"mpiexec has started 2 processes, and mpi4py's MPI \(\w.*\) sees one"):
        open_processes("cpu", None)


def test_a_job_on_gpus_says_what_it_has_and_takes_time_on_the_device(two, monkeypatch):
    two(["GPU-0"], ["GPU-0"])
    options = JobOptions(ngpu=3, strategy="ma", num_threads=2)
    opened = open_job(options, make_strategy("ma"))
    assert opened.device == torch.device("cuda:0") and opened.hosting == (
        "2 processes over mpi through host memory, cuda, 2 threads each; 3 workers share them, up to 2 virtual ones in a process; 2 "
        "processes share the device cuda:0")
    assert type(opened.host.clock) is DeviceClock and all(fabric.clock is opened.host.clock for fabric in opened.host.fabrics)
    monkeypatch.setattr(socket, "gethostname", lambda: "b")
    with pytest.raises(UserError, match=r"2 processes for --ngpu 1"):
        open_job(JobOptions(), make_strategy("local"))


@pytest.mark.parametrize("fabric", ["nccl", None])
def test_one_process_with_nccl_on_a_cpu(fabric, monkeypatch):
    monkeypatch.setattr(job, "num_visible", lambda: 0)
    options = JobOptions(ngpu=1, fabric=fabric)
    if fabric is None:
        assert open_job(options, make_strategy("local")).device == torch.device("cpu")
    else:
        with pytest.raises(UserError, match="--fabric nccl: NCCL exchanges between GPUs, and there is no CUDA device here; use"):
            open_job(options, make_strategy("local"))


@pytest.mark.parametrize(("options", "together", "alone"), [({}, 3, 6), ({"num_threads": 2}, 2, 2), ({"deterministic": True}, 1, 1)])
def test_a_process_that_computes_alone_has_the_cores_of_those_that_wait(in_processes, monkeypatch, options, together, alone):
    own = threading.local()
    monkeypatch.setattr(job, "open_processes", lambda *options: (own.processes, Placement(("here",) * 2, ("cpu",) * 2, "gloo")))
    monkeypatch.setattr(job, "local_cores", lambda: 6)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: setattr(own, "threads", count))

    def work(processes):
        own.processes = processes
        opened = open_job(JobOptions(ngpu=2, strategy="ma", device="cpu", **options), make_strategy("ma", strategy_options("ma")()))
        found = [own.threads]
        with opened.alone():
            found.append(own.threads)
        return [*found, own.threads]

    assert in_processes(2, work) == [[together, alone, together]] * 2


def test_sums_go_node_by_node_on_request(two, monkeypatch):
    two([], [])
    asked = JobOptions(ngpu=2, strategy="ma", hierarchical_allreduce=True)
    with pytest.raises(UserError, match="--hierarchical-allreduce true: expected several hosts with several processes on some, found 2 "
                                        "processes on 1; leave it out"):
        open_job(asked, make_strategy("ma"))
    made = []
    monkeypatch.setattr(job, "ByNode", lambda processes, hosts: made.append((processes, hosts)) or processes)
    assert "over mpi, node by node, cpu" in open_job(asked, make_strategy("ma")).hosting
    assert [(type(processes), hosts) for processes, hosts in made] == [(One, [socket.gethostname()] * 2)]
    with pytest.raises(UserError, match="--strategy asgd --hierarchical-allreduce true: its workers do not sum all together"):
        open_job(JobOptions(strategy="asgd", hierarchical_allreduce=True), make_strategy("asgd"))
    for options in ({"deterministic": True}, {"fabric": "virtual"}):
        with pytest.raises(UserError, match=r"--hierarchical-allreduce true --.*; leave one of the two out"):
            JobOptions(hierarchical_allreduce=True, **options)
