"""Measuring this machine: what is timed is what a worker does, and two processes really exchange."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import sys
from pathlib import Path

import pytest
import torch

from pykaldist.errors import UserError
from pykaldist.parallel.fabric.processes import SingleProcess
from pykaldist.parallel.launch.placement import Placement
from pykaldist.parallel.strategies.base.registry import strategies
from pykaldist.train import measure as module
from pykaldist.train.measure import Job, measure

JOB = Job(hid_layers=1, hid_dim=64, splice=1, feat_dim=10, num_pdfs=20, minibatch_size=32, optimizer="sgd", device="cpu", num_threads=1,
          seconds=0.05)


def test_one_process_times_a_worker():
    threads = torch.get_num_threads()
    small, large = measure(JOB, exchange=False), measure(dataclasses.replace(JOB, hid_layers=4, hid_dim=512), exchange=False)
    assert torch.get_num_threads() == threads
    assert small.parameters == 30 * 64 + 64 + 64 * 20 + 20
    assert small.exchange is None and "nothing to exchange" in small.no_exchange
    for found in (small, large):
        assert 0 < found.score_seconds < found.alone.compute < 1 and 0 < found.alone.load < 1
        assert 1e8 < found.memory_bandwidth < 1e13 and 0 <= found.alone.spread < 10 and not found.work_bandwidth
    assert large.alone.compute > 2 * small.alone.compute


def test_what_strategies_compute_themselves_is_timed_where_they_say_that_they_do():
    found = measure(dataclasses.replace(JOB, strategies=tuple(strategies())), exchange=False).work_bandwidth
    assert {"the filter", "quantising", "the elastic force", "the outer step"} <= set(found) and all(v > 1e5 for v in found.values())
    assert not measure(dataclasses.replace(JOB, strategies=("ma", "local", "asgd")), exchange=False).work_bandwidth


def test_a_store_gives_the_data(make_store):
    store = make_store([100, 60, 50])
    found = measure(dataclasses.replace(JOB, store=str(store.path), optimizer="ngsgd"), exchange=False)
    assert found.parameters == 12 * 64 + 64 + 64 * 5 + 5  # of the store's 3 x 4 inputs and 5 pdfs
    assert found.alone.compute > 0


@pytest.mark.gpu(devices=2)
def test_a_gpu_that_is_named_is_measured_alone(cuda):
    found = measure(dataclasses.replace(JOB, device="cuda:1"))
    assert found.devices == 1 and found.exchange is None and torch.cuda.current_device() == 0
    assert torch.cuda.max_memory_allocated(1) > 0 and (cuda is None or torch.cuda.max_memory_allocated(0) == 0)


def test_two_processes_compute_and_exchange():
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core: two processes would take turns, and their exchange could not be timed")
    if not Path(sys.executable).with_name("mpiexec").is_file() and shutil.which("mpiexec") is None:
        pytest.skip("no mpiexec: a Python of the user's own, without the mpich of requirements.txt")
    try:
        found = measure(dataclasses.replace(JOB, hid_dim=512))
    except UserError as error:
        if "keep this machine busy" not in str(error):
            raise
        pytest.skip(f"an exchange cannot be timed now: {error}")
    assert found.devices >= 2 and not found.no_exchange
    assert 1e6 < found.exchange.bandwidth < 1e12 and 0 < found.exchange.latency < 0.1
    assert found.exchange.steps.compute > 0 and found.exchange.fabric == "mpi"


def test_each_of_two_processes_measures_on_the_device_of_its_place(tmp_path, monkeypatch):
    class Rank1(SingleProcess):
        rank, size = 1, 2

    asked, measured = [], []

    class Trial:
        def __init__(self, job, folder):
            measured.append(job.device)
            raise UserError("enough")

    placement = Placement(("a", "a"), ("cuda:0", "cuda:1"), "nccl")
    monkeypatch.setattr(module, "open_processes", lambda device, fabric: asked.append((device, fabric)) or (Rank1(), placement))
    monkeypatch.setattr(module, "_Trial", Trial)
    (tmp_path / "job").write_text(json.dumps(dataclasses.asdict(dataclasses.replace(JOB, device="cuda"))))
    with torch.no_grad(), pytest.raises(UserError, match="enough"):
        module._one_of_two(tmp_path / "job", tmp_path / "result")
    assert asked == [("cuda", None)] and measured == ["cuda:1"]


def test_an_exchange_that_cannot_be_timed_gives_no_number():
    assert module.bandwidth(4000, 0.5, 2.5) == 2000.0
    with pytest.raises(UserError, match=r"all-reduce of 4,000 bytes took 300 us and one of a single value 500 us; .* when it is idle"):
        module.bandwidth(4000, 5e-4, 3e-4)


def test_one_device_has_nobody_to_exchange_with():
    found = measure(dataclasses.replace(JOB, num_threads=2 * len(os.sched_getaffinity(0))))
    assert found.devices == 1 and found.exchange is None and "one device" in found.no_exchange


@pytest.mark.parametrize(("script", "words"), [
    ("echo no such host >&2; exit 3", "could not be measured (no such host)"), ("exit 0", "could not be measured (exit status 0)"),
    ("sleep 20", "did not finish within"),
])
def test_an_mpi_that_fails_is_a_sentence(tmp_path, monkeypatch, script, words):
    mpiexec = tmp_path / "mpiexec"
    mpiexec.write_text(f"#!/bin/sh\n{script}\n")
    mpiexec.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(module, "TIMEOUT", 1.0)
    monkeypatch.setattr(module, "devices", lambda job: 2)
    with pytest.raises(UserError) as raised:
        measure(JOB)
    assert words in str(raised.value) and "check MPI with" in str(raised.value)


def test_a_machine_without_mpi_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(module, "devices", lambda job: 2)
    assert "no MPI here" in measure(JOB).no_exchange
