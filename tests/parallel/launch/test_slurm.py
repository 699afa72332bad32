"""Jobs on a real SLURM of two nodes with two tasks each: they start, end when they are told to, and go on.

    tests/run.sh --all tests/parallel/launch/test_slurm.py                 (apt-get install slurm-wlm munge; as root)
    STARTS=20 tests/run.sh --all tests/parallel/launch/test_slurm.py -k starts
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from slurm import PATIENCE_S, lacking, slurm

from pykaldist.io import container

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(lacking()), reason=lacking())]
STARTS = int(os.environ.get("STARTS", "1"))  # of each kind
EPOCHS = 400
OPTIONS = ["--ngpu", "4", "--hid-layers", "1", "--hid-dim", "16", "--splice", "1", "--minibatch-size", "32", "--num-threads", "1",
           "--device", "cpu", "--schedule", "fixed", "--strategy", "ma", "--average-period", "2", "--checkpoint-minutes", "100",
           "--start-timeout", "240"]
SHORT, LONG = ["--learn-rates", "0.01"], ["--learn-rates", ",".join(["0.002"] * EPOCHS)]


@pytest.fixture(scope="module")
def cluster():
    with slurm() as env:
        yield env


@pytest.fixture
def store(make_store) -> Path:
    make_store([200] * 10, seed=1, name="train")
    return make_store([60], seed=2, name="dev").path.parent


class Slurm:
    """What a user does with SLURM. `exp` is the experiment's folder."""

    def __init__(self, env: dict[str, str], store: Path, tmp_path: Path, root: Path) -> None:
        self.env = {**env, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", "PYKALDIST_PYTHON": sys.executable}
        self.store, self.root, self.tmp_path = store, root, tmp_path
        self.exp = tmp_path / "exp"

    def verb(self, *options: str) -> list[str]:
        return [sys.executable, "-m", "pykaldist", "train", *OPTIONS, *options, str(self.store), str(self.exp)]

    def stage(self, *options: str) -> list[str]:
        return [str(self.root / "steps" / "nnet" / "train.sh"), *OPTIONS, "--retries", "0", *options, str(self.store), str(self.exp)]

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, env=self.env, cwd=self.root, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False)

    def submit(self, command: list[str], *options: str) -> str:
        """Submit a batch job. Returns its number."""
        script = self.tmp_path / "job.sh"
        script.write_text(f"#!/bin/bash\n{shlex.join(command)}\n")
        done = self.run("sbatch", "--parsable", "-N2", "-n4", "-o", str(self.tmp_path / "log"), "--open-mode=append", *options, str(script))
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def epochs(self) -> int:
        path = self.exp / "history.jsonl"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def wait_for_epochs(self, count: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while self.epochs() < count:
            assert time.monotonic() < deadline, self.told()
            time.sleep(0.1)

    def told(self) -> str:
        return "\n".join(path.read_text() for path in (self.exp / "log" / "train.log", self.tmp_path / "log") if path.exists())

    def processes(self) -> list[int]:
        """The processes that have the experiment in their command."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
            except OSError:
                continue
            if str(self.exp).encode() in words and b"pykaldist" in words:
                found.append(int(path.parent.name))
        return found

    def wait_for_end(self, job: str) -> None:
        """Until the job has ended; no process is left a few seconds after it."""
        deadline = time.monotonic() + PATIENCE_S
        while self.run("squeue", "-h", "-j", job).stdout.strip():
            assert time.monotonic() < deadline, self.told()
            time.sleep(0.2)
        deadline = time.monotonic() + 5.0
        while left := self.processes():
            assert time.monotonic() < deadline, left
            time.sleep(0.1)

    def newest_checkpoint(self) -> Path:
        return max((self.exp / "ckpt").iterdir(), key=lambda path: path.stat().st_mtime)


@pytest.fixture
def user(cluster, store, tmp_path, root) -> Slurm:
    return Slurm(cluster, store, tmp_path, root)


@pytest.mark.parametrize("fabric", ["mpi", "gloo"])
@pytest.mark.parametrize("by", ["sbatch", "salloc", "srun"])
def test_it_starts(user, by, fabric):
    for n in range(STARTS):
        user.exp = user.tmp_path / f"exp{n}"
        options = ("-N2", "-n4")
        if by == "srun":  # a step of the user's own, in which each process takes part
            done = user.run("srun", *options, *user.verb(*SHORT, "--fabric", fabric))
        elif by == "salloc":
            done = user.run("salloc", *options, *user.stage(*SHORT, "--fabric", fabric))
        else:
            done = user.run("sbatch", "--wait", *options, "-o", str(user.tmp_path / "log"), "--wrap",
                            shlex.join(user.stage(*SHORT, "--fabric", fabric)))
        assert done.returncode == 0, f"start {n}: {done.stdout} {done.stderr} {user.told()}"
        assert f"4 processes over {fabric}" in done.stdout + user.told()
        assert container.load(user.exp / "final.pt")["params"].isfinite().all()


@pytest.mark.parametrize("how", ["scancel", "scancel --signal=TERM", "scancel --batch --signal=TERM"])
def test_a_cancelled_job_has_a_checkpoint_and_goes_on(user, how):
    """Checkpoints are written at the end of an epoch, and when the job is told to end: in the midst of one."""
    job = user.submit(user.stage(*LONG) if "batch" not in how else ["exec", *user.stage(*LONG)])
    user.wait_for_epochs(2)
    assert user.run(*how.split(), job).returncode == 0
    user.wait_for_end(job)
    assert "terminated; run the same command again to go on" in user.told(), user.told()
    state = container.load(user.newest_checkpoint())
    assert state and 2 <= user.epochs() < EPOCHS
    before = user.epochs()
    job = user.submit(user.stage(*LONG))
    user.wait_for_epochs(before + 1)
    lines = [json.loads(line)["epoch"] for line in (user.exp / "history.jsonl").read_text().splitlines()]
    assert lines == list(range(1, len(lines) + 1))  # no epoch is done again
    user.run("scancel", job)
    user.wait_for_end(job)


@pytest.mark.parametrize("seconds", [0.5, 3.0, 8.0])
@pytest.mark.parametrize("signal", ["", "--signal=TERM"])
def test_a_job_that_is_cancelled_as_it_starts_leaves_nothing(user, seconds, signal):
    job = user.submit(user.stage(*LONG))
    deadline = time.monotonic() + PATIENCE_S
    while not user.processes():
        assert time.monotonic() < deadline, user.told()
        time.sleep(0.05)
    time.sleep(seconds)
    begun = time.monotonic()
    while user.run("squeue", "-h", "-j", job).stdout.strip():  # --signal=TERM reaches steps alone, and there may be none yet
        assert user.run("scancel", *signal.split(), job).returncode == 0 or signal
        assert time.monotonic() < begun + PATIENCE_S, user.told()
        time.sleep(1.0)
    user.wait_for_end(job)
    assert not (user.exp / ".ranks").exists() or not list((user.exp / ".ranks").glob("rendezvous-*"))


def test_the_end_of_the_time_is_told_before(user):
    """The shell of the job gets SIGTERM so many seconds before the end, or up to a minute earlier: at any moment, the start included."""
    job = user.submit(["exec", *user.stage(*LONG)], "--time=2", "--signal=B:TERM@60")
    user.wait_for_end(job)
    if user.epochs():
        assert user.newest_checkpoint()
    assert "terminated; run the same command again to go on" in user.told()


def test_a_requeued_job_resumes(user):
    job = user.submit(user.stage(*LONG), "--requeue")
    user.wait_for_epochs(2)
    assert user.run("scontrol", "requeue", job).returncode == 0
    before = user.epochs()
    user.run("scontrol", "update", f"JobId={job}", "StartTime=now")
    user.wait_for_epochs(before + 3)
    epochs = [json.loads(line)["epoch"] for line in (user.exp / "history.jsonl").read_text().splitlines()]
    assert epochs == list(range(1, len(epochs) + 1))
    user.run("scancel", job)
    user.wait_for_end(job)


def test_who_does_not_come_is_named(user):
    """Task 3 stops before it joins."""
    stops = f'if [ "$SLURM_PROCID" = 3 ]; then sleep 1000; fi; exec {" ".join(user.verb(*SHORT, "--start-timeout", "20"))}'
    done = user.run("srun", "-N2", "-n4", "--kill-on-bad-exit=1", "bash", "-c", stops)
    assert done.returncode
    assert "process 3 of 4 processes has not come to meet the others within 20 s; there are process 0 on n1 (pid" in done.stderr
