"""A job: the nodes that workers are on, and the host that runs them."""

from __future__ import annotations

import json
import threading

import pytest
import torch

from pykaldist.errors import UserError
from pykaldist.parallel.engines.concurrent import ConcurrentHost
from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.engines.simulation import Simulation
from pykaldist.parallel.launch import job
from pykaldist.parallel.launch.job import JobOptions, open_job
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
    for strategy, own in (("ssgd", {}), ("hadpsgd", {}), ("adpsgd", {"pattern": "delay-by-one"})):
        with pytest.raises(UserError, match=f"--strategy {strategy} does not survive that"):
            opened(strategy, str(tmp_path / "c.json"), **own)


@pytest.mark.parametrize(("options", "together", "alone"), [({}, 3, 6), ({"num_threads": 2}, 2, 2), ({"deterministic": True}, 1, 1)])
def test_a_process_that_computes_alone_has_the_cores_of_those_that_wait(in_processes, monkeypatch, options, together, alone):
    own = threading.local()
    monkeypatch.setattr(job, "open_processes", lambda options: (own.processes, "gloo"))
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
