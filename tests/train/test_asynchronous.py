"""Asynchronous strategies over real processes, as a user runs them: all frames once an epoch, stopped and resumed, and deaths."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import EPOCHS, HERE, PATIENCE_S, Run, environment, epochs_done, listening, send_garbage

from pykaldist.cli import main

FRAMES = 50 * 40
STRATEGIES = {
    "asgd": ["--strategy", "asgd"],
    "asgd, two servers": ["--strategy", "asgd", "--servers", "2", "--work", "shards", "--max-distance", "2"],
    "adpsgd, ring": ["--strategy", "adpsgd", "--lr-scale", "none", "--momentum", "0"],
    "adpsgd, pairwise": ["--strategy", "adpsgd", "--pattern", "pairwise", "--optimizer", "ngsgd", "--lr-scale", "none",
                         "--momentum", "0"],
    "adpsgd, delay-by-one": ["--strategy", "adpsgd", "--pattern", "delay-by-one", "--lr-scale", "none"],
    "hadpsgd": ["--strategy", "hadpsgd", "--group-size", "2", "--lr-scale", "none"],
    "hadpsgd, delay-by-one": ["--strategy", "hadpsgd", "--group-size", "2", "--pattern", "delay-by-one", "--lr-scale", "none"],
}


@pytest.fixture
def store(make_store) -> Path:
    make_store([50] * 40, seed=1, name="train")
    return make_store([50] * 4, seed=2, name="dev").path.parent


def history(exp: Path) -> list[dict]:
    return [json.loads(line) for line in (exp / "history.jsonl").read_text().splitlines()]


CASES = [("asgd", "mpi", 3, 2)]
SLOW = [(strategy, fabric, *sizes) for strategy in STRATEGIES for fabric in ("mpi", "gloo") for sizes in ((4, 4), (4, 2))]


@pytest.mark.parametrize(("strategy", "fabric", "workers", "count"),
                         [*CASES, *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW)])
def test_every_frame_once_an_epoch_and_stopped_and_resumed(store, tmp_path, strategy, fabric, workers, count):
    job = [*STRATEGIES[strategy], "--fabric", fabric, "--ngpu", str(workers), "--nproc", str(count)]
    exp = tmp_path / "exp"
    run = Run(store, exp, job=job, processes=count)
    for pid in run.wait_for(2).values():
        os.kill(pid, signal.SIGTERM)
    status, out, err = run.end()
    assert (status, err) == (143, "pykaldist train: terminated; run the same command again to go on.\n")
    assert f"{workers} on {count} processes over {fabric}" in out
    loss_before = float(re.search(r"^before training: cv loss ([\d.]+)", out, re.MULTILINE)[1])
    status, out, err = Run(store, exp, job=job, processes=count).end()
    assert (status, err) == (0, "") and "resuming at epoch" in out
    lines = history(exp)
    assert len(lines) == EPOCHS and [line["frames"] for line in lines] == [FRAMES] * EPOCHS
    assert lines[-1]["cv_loss"] < lines[0]["cv_loss"] < loss_before
    assert {line["time"] for line in lines} == {"measured"}
    if "delay-by-one" not in strategy:
        assert all(sum(line["staleness"].values()) > 0 for line in lines)


@pytest.mark.parametrize(("strategy", "fabric"), [
    ("adpsgd, ring", "mpi"), *(pytest.param(strategy, fabric, marks=pytest.mark.slow) for strategy, fabric in (
        ("adpsgd, ring", "gloo"), ("asgd", "gloo"), ("asgd", "mpi"), ("adpsgd, pairwise", "mpi"), ("adpsgd, pairwise", "gloo")))])
def test_the_others_go_on_when_a_worker_dies(store, tmp_path, strategy, fabric):
    """And finish, with all of the data; the log says so, the exit status is 0; run again, there is nothing to do."""
    exp = tmp_path / "exp"
    job = [*STRATEGIES[strategy], "--fabric", fabric, "--ngpu", "3", "--nproc", "3"]
    long = ["--schedule", "fixed", "--learn-rates", ",".join(["0.002"] * 30)]
    run = Run(store, exp, *long, job=job, processes=3)
    os.kill(run.wait_for(2)[1], signal.SIGKILL)
    status, out, err = run.end()
    assert (status, err) == (0, "")
    assert out.count(f"process 1 on {HERE} has died, and with it worker 1; 2 go on, and do") == 1
    lines = history(exp)
    assert len(lines) == 30 and lines[-1]["dead"] == [1] and (exp / "final.pt").exists()
    after = lines.index(next(line for line in lines if "dead" in line)) + 1
    assert after < 30 and all(line["frames"] == FRAMES for line in lines[after:])
    assert main(["train", *run.process.args[4:]]) == 0


@pytest.mark.parametrize(("fabric", "killed"), [("mpi", 3), *(pytest.param(fabric, killed, marks=pytest.mark.slow) for fabric, killed in (
    ("mpi", 2), ("gloo", 3), ("gloo", 2)))])
def test_a_group_that_loses_a_worker_leaves_and_the_others_go_on(store, tmp_path, fabric, killed):
    """Whichever of the group it was; and finish, with all of the data."""
    exp = tmp_path / "exp"
    job = [*STRATEGIES["hadpsgd"], "--fabric", fabric, "--ngpu", "4", "--nproc", "4"]
    run = Run(store, exp, "--schedule", "fixed", "--learn-rates", ",".join(["0.002"] * 30), job=job, processes=4)
    os.kill(run.wait_for(2)[killed], signal.SIGKILL)
    status, out, err = run.end()
    assert (status, err) == (0, "")
    assert f"process {killed} on {HERE} has died, and with it worker {killed}, whose group, workers 2 to 3, leaves the job; 2 go on" in out
    assert f"process {5 - killed} on {HERE} is gone with its group; 2 go on, and do" in out
    lines = history(exp)
    assert len(lines) == 30 and lines[-1]["dead"] == [2, 3] and (exp / "final.pt").exists()
    after = lines.index(next(line for line in lines if "dead" in line)) + 1
    assert after < 30 and all(line["frames"] == FRAMES for line in lines[after:])


@pytest.mark.parametrize(("fabric", "strangers", "epochs"), [
    ("mpi", 300, 30), ("gloo", 300, 30), *(pytest.param(fabric, 10_000, 600, marks=pytest.mark.slow) for fabric in ("mpi", "gloo"))])
def test_only_loopback_listens_and_strangers_change_nothing(store, tmp_path, fabric, strangers, epochs):
    """Of a job on one machine: hundreds and thousands of connections to whatever listens, with garbage, while it trains."""
    exp = tmp_path / "exp"
    job = [*STRATEGIES["adpsgd, ring"], "--fabric", fabric, "--ngpu", "2", "--nproc", "2"]
    seldom = ["--checkpoint-minutes", "5"] * (strangers > 300)  # a checkpoint a minibatch would take most of the time
    run = Run(store, exp, "--schedule", "fixed", "--learn-rates", ",".join(["0.002"] * epochs), *seldom, job=job)
    run.wait_for(1)
    places = listening(run.process.pid)
    assert len(places) >= 2 and {address for address, _ in places} == {"127.0.0.1"}, places
    send_garbage(places, strangers)
    assert epochs_done(exp) < epochs
    status, _, err = run.end()
    assert (status, err) == (0, "") and [line["frames"] for line in history(exp)] == [FRAMES] * epochs


@pytest.mark.slow
def test_a_job_ends_with_process_0_and_goes_on_with_all_when_it_is_run_again(store, tmp_path):
    """Where a worker had died before, from the others' mean."""
    exp = tmp_path / "exp"
    job = [*STRATEGIES["adpsgd, ring"], "--ngpu", "3", "--nproc", "3"]
    rates = ["--schedule", "fixed", "--learn-rates", ",".join(["0.002"] * 40)]
    run = Run(store, exp, *rates, job=job, processes=3)
    pids = run.wait_for(2)
    os.kill(pids[2], signal.SIGKILL)
    so_far = epochs_done(exp)
    while epochs_done(exp) < so_far + 3:
        assert run.process.poll() is None
    os.kill(pids[0], signal.SIGKILL)
    status, _, err = run.end()
    assert status == 75 and "process 0 on" in err and "run the same command again to go on" in err
    status, out, _ = Run(store, exp, *rates, job=job, processes=3).end()
    assert status == 0 and re.search(r"resuming at the beginning of epoch \d+ with 3 workers from the mean of 2 workers' models", out)
    assert len(history(exp)) == 40 and "dead" not in history(exp)[-1]


@pytest.mark.slow
def test_rbms_train_out_of_step_too(store, tmp_path):
    command = [sys.executable, "-m", "pykaldist", "pretrain-dbn", "--hid-layers", "1", "--hid-dim", "8", "--splice", "1", "--device", "cpu",
               "--strategy", "adpsgd", "--ngpu", "2", "--nproc", "2", str(store), str(tmp_path / "exp")]
    out = subprocess.run(command, env=environment(), check=True, capture_output=True, text=True, timeout=PATIENCE_S).stdout
    assert "2 on 2 processes over mpi" in out and (tmp_path / "exp" / "dbn.pt").is_file()


def test_a_virtual_run_is_a_simulated_one(store, tmp_path, capsys):
    assert main(["train", "--hid-layers", "1", "--hid-dim", "8", "--splice", "1", "--device", "cpu", "--num-threads", "1", "--strategy",
                 "asgd", "--ngpu", "3", "--fabric", "virtual", "--num-epochs", "1", "--schedule", "exponential", str(store),
                 str(tmp_path / "exp")]) == 0
    assert "all times are simulated, those of cluster v100-ethernet" in capsys.readouterr().out
