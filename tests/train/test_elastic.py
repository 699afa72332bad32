"""Elastic jobs as a user runs them: on a simulated cluster with a script of deaths, and over processes that are killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from jobs import EPOCHS, HERE, OPTIONS, PATIENCE_S, Run, complaints, environment
from stopping import Interrupted, stop_at

from pykaldist.cli import main
from pykaldist.io import container
from pykaldist.parallel.launch.supervisor import FOLDER
from pykaldist.parallel.transport.door import WAITS

SIMULATED = ["--hid-layers", "1", "--hid-dim", "8", "--splice", "1", "--minibatch-size", "8", "--num-threads", "1", "--device", "cpu",
             "--schedule", "exponential", "--num-epochs", "3", "--learn-rate", "0.02", "--momentum", "0.3", "--ngpu", "4"]
CLUSTER = {"name": "small", "description": "", "nodes": 2, "devices": 2, "compute": {"minibatch_seconds": 0.5, "spread": 0.3},
           "between": {"bandwidth": 1e4, "latency": 1e-3},
           "workload": {"network": "12-8x1-5", "parameters": 149, "minibatch_size": 8, "frames": 265}}
SCRIPT = {"failures": [{"worker": 3, "at": 2.2}, {"worker": 1, "at": 6.0}], "joins": [{"worker": 3, "at": 4.0}]}
WAYS = {"ma": ["--strategy", "ma", "--average-period", "2"], "bmuf": ["--strategy", "bmuf", "--average-period", "2"],
        "diloco": ["--strategy", "diloco", "--average-period", "2", "--fragments", "2", "--overlap-steps", "1"]}


@pytest.fixture
def small(make_store):
    make_store([20, 35, 50, 44, 60, 31, 25], seed=1, name="train")
    return make_store([30, 40], seed=2, name="dev").path.parent


@pytest.fixture
def store(make_store) -> Path:
    make_store([50] * 40, seed=1, name="train")
    return make_store([50] * 4, seed=2, name="dev").path.parent


def history(exp: Path) -> list[dict]:
    return [json.loads(line) for line in (exp / "history.jsonl").read_text().splitlines()]


def params(exp: Path) -> torch.Tensor:
    return container.load(exp / "final.pt")["params"]


@pytest.mark.parametrize("way", ["diloco", *(pytest.param(way, marks=pytest.mark.slow) for way in ("ma", "bmuf"))])
def test_a_scripted_job_twice_the_same_and_stopped_and_resumed(small, tmp_path, way, monkeypatch, capsys):
    (tmp_path / "cluster.json").write_text(json.dumps({**CLUSTER, **SCRIPT}))
    options = [*SIMULATED, *WAYS[way], "--elastic", "true", "--cluster", str(tmp_path / "cluster.json")]

    def train(name, *more):
        return main(["train", *options, *more, str(small), str(tmp_path / name)])

    assert train("whole") == 0
    said, lines = capsys.readouterr().out, history(tmp_path / "whole")
    lost, joined = ([one for line in lines for one in line.get(name, [])] for name in ("lost", "joined"))
    assert [one["worker"] for one in lost] == [3, 1] and [one["worker"] for one in joined] == [3] and lines[-1]["dead"] == [1]
    assert all(0 < one["frames"] <= 8 * one["minibatches"] for one in lost)
    assert re.search(r"worker 3 lost before round \d+ of epoch 1; 3 go on, and share what was left: \d+ minibatches, \d+ frames", said)
    assert lines[-1]["frames"] == 265  # of an epoch that three workers made from the beginning
    stop_at(monkeypatch, lambda count: count in (2, 5, 9))
    for _ in range(3):
        with pytest.raises(Interrupted):
            train("exp", "--checkpoint-minutes", "0")
    assert train("exp", "--checkpoint-minutes", "0") == 0
    assert torch.equal(params(tmp_path / "exp"), params(tmp_path / "whole")) and history(tmp_path / "exp") == lines


@pytest.mark.parametrize(("options", "words"), [
    (["--strategy", "ssgd"], "--elastic true: only strategies whose workers average models at times"),
    (["--strategy", "adpsgd"], "--elastic true: only strategies whose workers average models at times"),
    (["--strategy", "ma", "--fabric", "virtual"], "--elastic true: all virtual workers die with their process"),
    (["--strategy", "ma", "--nproc", "2", "--reduce-type", "ring"], "--elastic true: --reduce-type ring averages pairs of workers"),
    (["--strategy", "bmuf", "--nproc", "2", "--exchange-dtype", "bf16"], "--elastic true: --exchange-dtype bf16 leaves with each worker"),
    (["--strategy", "diloco", "--nproc", "2", "--outer-bits", "4"], "--elastic true: --outer-bits 4 leaves with each worker"),
    (["--strategy", "ma", "--nproc", "2", "--hierarchical-allreduce", "true"], "--elastic true: its exchanges go over process 0"),
    (["--strategy", "ma", "--cluster", "k20-infiniband", "--layerwise-epochs", "1", "--hid-layers", "2"], "are several; pretrain in"),
])
def test_what_it_cannot_be_is_said_in_one_sentence(small, tmp_path, capsys, options, words):
    assert main(["train", *SIMULATED, *options, "--elastic", "true", str(small), str(tmp_path / "exp")]) == 1
    said = capsys.readouterr().err
    assert words in said and len(said.splitlines()) == 1


def test_replacements_in_a_cluster_file_are_for_elastic_jobs(small, tmp_path, capsys):
    (tmp_path / "cluster.json").write_text(json.dumps({**CLUSTER, "joins": [{"worker": 3, "at": 4.0}]}))
    assert main(["train", *SIMULATED, *WAYS["ma"], "--cluster", str(tmp_path / "cluster.json"), str(small), str(tmp_path / "exp")]) == 1
    assert "replaces workers, which only a job with --elastic true can take in" in capsys.readouterr().err


# Processes that are killed. (In CI, `parallel/engines/test_elastic_processes.py` has some that are threads.)

ELASTIC = ["--elastic", "true", "--average-period", "5", "--lr-scale", "none"]


@pytest.mark.slow
def test_a_killed_process_is_done_without(store, tmp_path):
    """Status 0; log and history say who was lost, and how much of its share the others did; the epochs that follow have every frame."""
    run = Run(store, tmp_path / "exp", job=["--ngpu", "3", "--nproc", "3", "--strategy", "bmuf", *ELASTIC, "--replacements", "0"],
              processes=3)
    os.kill(run.wait_for(2)[2], signal.SIGKILL)
    status, out, err = run.end()
    assert (status, complaints(err)) == (0, []), err
    lines = history(tmp_path / "exp")
    (lost,) = [one for line in lines for one in line.get("lost", [])]
    assert lost["worker"] == 2 and 0 <= lost["frames"] <= 32 * lost["minibatches"] and lines[-1]["dead"] == [2]
    assert len(lines) == EPOCHS and lines[-1]["frames"] == 2000
    assert f"process 2 on {HERE} has died" in out
    assert f"2 go on, and share what was left: {lost['minibatches']} minibatches, {lost['frames']} frames" in out


@pytest.mark.slow
@pytest.mark.parametrize("by", ["supervisor", "hand"])
def test_a_killed_process_is_replaced(store, tmp_path, by):
    """By one that its supervisor starts, or the user. The other process goes on alone, and is stopped until that one has come."""
    rates = ["--schedule", "fixed", "--learn-rates", ",".join(["0.001"] * 25)]
    job = ["--ngpu", "2", "--nproc", "2", "--strategy", "bmuf", *ELASTIC, "--replacements", str(int(by == "supervisor"))]
    run = Run(store, tmp_path / "exp", *rates, job=job)
    pids = run.wait_for(2)
    os.kill(pids[1], signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE_S
    while not any("dead" in line and "lost" not in line for line in history(tmp_path / "exp")) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(pids[0], signal.SIGSTOP)
    words = [sys.executable, "-m", "pykaldist", "train", *OPTIONS, *job, *rates, str(store), str(tmp_path / "exp")]
    own = subprocess.Popen(words, env=environment(PYKALDIST_REPLACES="1")) if by == "hand" else None
    while not (tmp_path / "exp" / FOLDER / f"{WAITS}1").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(pids[0], signal.SIGCONT)
    assert own is None or own.wait(PATIENCE_S) == 0
    status, out, err = run.end()
    assert (status, complaints(err)) == (0, []), err
    lines = history(tmp_path / "exp")
    (lost,), (joined,) = ([one for line in lines for one in line.get(name, [])] for name in ("lost", "joined"))
    assert lost["worker"] == joined["worker"] == 1 and "worker 1 joined before round" in out
    assert f"process 1 on {HERE} has died" in out and f"1 go on, and share what was left: {lost['minibatches']} minibatches" in out
    alone = next(line for line in lines if "dead" in line and "lost" not in line and "joined" not in line)
    assert alone["frames"] == 2000 and "dead" not in lines[-1] and lines[-1]["frames"] == 2000 and len(lines) == 25


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fabric", ["mpi", "gloo"])
def test_without_deaths_it_is_the_plain_job_and_leaders_are_resumed(store, tmp_path, way, fabric):
    """Bit for bit; and when process 0 is killed, the job ends with a sentence, and goes on to the same model when it is run again."""
    job = ["--ngpu", "3", "--nproc", "3", "--strategy", way, "--average-period", "5", "--fabric", fabric, "--deterministic", "true"]
    assert Run(store, tmp_path / "plain", job=job, processes=3).end()[0] == 0
    assert Run(store, tmp_path / "whole", "--elastic", "true", job=job, processes=3).end()[0] == 0
    assert torch.equal(params(tmp_path / "plain"), params(tmp_path / "whole"))
    run = Run(store, tmp_path / "exp", "--elastic", "true", job=job, processes=3)
    os.kill(run.wait_for(2)[0], signal.SIGKILL)
    status, _, err = run.end()
    assert status == 75 and "run the same command again to go on" in err, err
    status, out, err = Run(store, tmp_path / "exp", "--elastic", "true", job=job, processes=3).end()
    assert status == 0 and "resuming at epoch" in out
    assert torch.equal(params(tmp_path / "exp"), params(tmp_path / "whole"))


@pytest.mark.slow
def test_twenty_kills_at_random_moments(store, tmp_path):
    """Of any process but the first, with replacements: all end with status 0."""
    for seed in range(20):
        draw = torch.Generator().manual_seed(seed)
        way = list(WAYS)[seed % 3]
        run = Run(store, tmp_path / f"exp{seed}", job=["--ngpu", "3", "--nproc", "3", "--strategy", way, *ELASTIC], processes=3)
        pids = run.wait_for(int(torch.randint(0, EPOCHS - 1, (), generator=draw)))
        os.kill(pids[1 + seed % 2], signal.SIGKILL)
        status, _, err = run.end()
        assert (status, complaints(err)) == (0, []), (seed, err)
        assert len(history(tmp_path / f"exp{seed}")) == EPOCHS
