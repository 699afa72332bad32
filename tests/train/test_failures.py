"""When something dies: a job of two processes ends with one sentence, leaves nothing behind, and goes on when it is run again."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from jobs import (
    EPOCHS,
    HERE,
    JOB,
    OPTIONS,
    PATIENCE_S,
    Run,
    alive,
    assert_same,
    complaints,
    epochs_done,
    in_a_recipe,
    listening,
    send_garbage,
    wait_for_epochs,
)

from pykaldist.cli import main
from pykaldist.parallel.launch.watch import read_records
from pykaldist.train.checkpoints import Checkpoints

WITH_GLOO = ["mpi", pytest.param("gloo", marks=pytest.mark.slow)]


@pytest.fixture
def store(make_store) -> Path:
    make_store([50] * 40, seed=1, name="train")
    return make_store([50] * 4, seed=2, name="dev").path.parent


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("kept") / "reference"


@pytest.fixture
def reference(store, kept) -> Path:
    """An undisturbed run of two processes, made once."""
    if not kept.exists():
        status, out, err = Run(store, kept).end()
        assert (status, err) == (0, "") and "2 on 2 processes over mpi" in out
    return kept


@pytest.mark.parametrize("fabric", WITH_GLOO)
def test_a_killed_process(store, tmp_path, reference, fabric):
    """Named; and the same command goes on to the same model, bit for bit, also where it is killed again."""
    for rank, epochs in ((1, 1), (0, 4)):
        run = Run(store, tmp_path / "exp", "--fabric", fabric)
        pid = run.wait_for(epochs)[rank]
        os.kill(pid, signal.SIGKILL)
        status, _, err = run.end()
        assert status == 75
        assert complaints(err) == [f"pykaldist train: ERROR: process {rank} on {HERE} (pid {pid}) was killed by signal 9 (SIGKILL); "
                                   "the last checkpoint is whole: run the same command again to go on."]
    status, out, _ = Run(store, tmp_path / "exp", "--fabric", fabric).end()
    assert status == 0 and "resuming at epoch" in out
    assert_same(tmp_path / "exp", reference)


def test_a_last_checkpoint_that_cannot_be_written(store, tmp_path, reference):
    """By process 1: there is no final.pt yet, which would call the run done; and the same command goes on to the same files."""
    last = max(reference.glob("ckpt/*.1.ckpt")).name
    blocked = tmp_path / "exp/ckpt" / last
    (blocked / "in_the_way").mkdir(parents=True)
    status, _, err = Run(store, tmp_path / "exp").end()
    assert status == 1 and "process 1" in complaints(err)[0] and last in complaints(err)[0], err
    assert not (tmp_path / "exp/final.pt").exists()
    shutil.rmtree(blocked)
    assert Run(store, tmp_path / "exp").end()[0] == 0
    assert_same(tmp_path / "exp", reference)
    assert blocked.is_file()


@pytest.mark.slow
def test_ten_thousand_strangers_change_no_bit(store, tmp_path, monkeypatch):
    """Garbage to whatever listens of a job on one machine, which is on the loopback: with MPI nothing, unless the user asks UCX for TCP."""
    options = ["--learn-rates", ",".join(["0.0005"] * 40), "--hid-dim", "512", "--average-period", "50", "--checkpoint-minutes", "5"]
    assert Run(store, tmp_path / "alone", *options).end()[0] == 0
    for name, fabric, most, tls in (("mpi", "mpi", 0, None), ("tcp", "mpi", 2, "all"), ("gloo", "gloo", 20, None)):
        with monkeypatch.context() as patched:
            if tls:
                patched.setenv("UCX_TLS", tls)
            run = Run(store, tmp_path / name, *options, "--fabric", fabric)
        run.wait_for(1)
        places = listening(run.process.pid)
        assert {address for address, _ in places} <= {"127.0.0.1"} and min(most, 1) <= len(places) <= most, (name, places)
        if places:
            send_garbage(places, 10_000)
            assert epochs_done(tmp_path / name) < 40, name
        status, _, err = run.end()
        assert (status, err) == (0, ""), name
        assert_same(tmp_path / name, tmp_path / "alone")


@pytest.mark.slow
@pytest.mark.parametrize("fabric", ["mpi", "gloo"])
def test_killed_at_twenty_random_moments(store, tmp_path, reference, fabric):
    """kill -9 of a random process at a random moment after they have met, then again the same command: 20 of 20 end in the same model."""
    rng = random.Random(5)
    outcomes = []
    for i in range(20):
        exp = tmp_path / f"exp{i}"
        run = Run(store, exp, "--fabric", fabric)
        pids = run.wait_for(rng.choice([0, 0, 1, 2, 3, 4, 5, 6]))
        time.sleep(rng.uniform(0, 0.3))
        os.kill(pids[rng.randrange(2)], signal.SIGKILL)
        status, _, _ = run.end()
        again, _, err = Run(store, exp, "--fabric", fabric).end()
        assert again == 0, err
        assert_same(exp, reference)
        outcomes.append((status, epochs_done(exp)))
        shutil.rmtree(exp)
    assert sum(status == 75 for status, _ in outcomes) >= 15, outcomes  # most of them came in time


def test_sigterm_and_a_job_of_another_size(store, tmp_path, reference, capsys):
    """A checkpoint, exit status 143; it goes on, to the same model; and with three workers it says what was reset."""
    run = Run(store, tmp_path / "exp")
    for pid in run.wait_for(2).values():  # a scheduler may tell all of them, more than once
        os.kill(pid, signal.SIGTERM)
    os.kill(run.process.pid, signal.SIGTERM)
    os.kill(run.process.pid, signal.SIGTERM)
    status, _, err = run.end()
    assert (status, err) == (143, "pykaldist train: terminated; run the same command again to go on.\n")
    assert 2 <= epochs_done(tmp_path / "exp") < EPOCHS
    shutil.copytree(tmp_path / "exp", tmp_path / "three")
    status, out, _ = Run(store, tmp_path / "exp").end()
    assert status == 0 and "resuming at epoch" in out
    assert_same(tmp_path / "exp", reference)

    assert main(["train", *OPTIONS, *JOB[4:], "--ngpu", "3", "--fabric", "virtual", str(store), str(tmp_path / "three")]) == 0
    said = capsys.readouterr()
    assert "holds a run of 2 workers; going on with 3" in said.err
    assert re.search(r"resuming at the beginning of epoch \d+ with 3 workers from the mean of 2 workers' models; reset: .*momentum",
                     said.out)
    assert epochs_done(tmp_path / "three") == EPOCHS


@pytest.mark.parametrize(("fabric", "rank"), [("mpi", 1), pytest.param("gloo", 0, marks=pytest.mark.slow)])
def test_a_hung_process(store, tmp_path, fabric, rank):
    run = Run(store, tmp_path / "exp", "--fabric", fabric, "--timeout", "16")
    pid = run.wait_for(1)[rank]
    os.kill(pid, signal.SIGSTOP)
    before = time.monotonic()
    status, _, err = run.end()
    assert status == 75 and time.monotonic() - before < 60
    assert err == (f"pykaldist train: ERROR: process {rank} on {HERE} (pid {pid}) is hung: no sign of life for 16 s, and no progress of "
                   "any process; the last checkpoint is whole: run the same command again to go on.\n")


def test_ctrl_c(store, tmp_path):
    """And until then, nobody else works in the folder, nor disturbs who does."""
    run = Run(store, tmp_path / "exp", "--schedule", "fixed", "--learn-rates", ",".join(["0.002"] * 1000))
    run.wait_for(1)
    other = Run(store, tmp_path / "exp").process
    _, err = other.communicate(timeout=PATIENCE_S)
    assert other.returncode == 1 and "is in use by process" in err
    assert run.process.poll() is None and len(read_records(tmp_path / "exp" / ".ranks")) == 2
    run.process.send_signal(signal.SIGINT)
    status, _, err = run.end()
    assert (status, err) == (130, "pykaldist train: interrupted; run the same command again to go on.\n")


@pytest.mark.parametrize("fabric", WITH_GLOO)
def test_a_killed_launcher_takes_its_processes_with_it(store, tmp_path, fabric):
    run = Run(store, tmp_path / "exp", "--fabric", fabric)
    run.wait_for(1)
    run.process.kill()
    assert run.end()[0] == -signal.SIGKILL


@pytest.mark.parametrize("fabric", WITH_GLOO)
def test_a_loss_that_is_no_number(store, tmp_path, fabric):
    options = ["--activation", "relu", "--schedule", "fixed", "--learn-rates", "1e30,1e30", "--fabric", fabric]
    status, _, err = Run(store, tmp_path / "exp", *options).end()
    assert status == 1
    assert re.fullmatch(rf"pykaldist train: ERROR: process [01] on {HERE}: training diverged in epoch 1, .*lower --learn-rate.*\n", err)


def test_a_full_disk(store, tmp_path):
    """Here a limit on the size of files, which checkpoints of a larger model exceed; gloo, as MPI's shared memory is files too."""
    options = ["--hid-dim", "256", "--fabric", "gloo"]
    status, _, err = Run(store, tmp_path / "exp", *options, limit=400_000).end()
    assert status == 1
    assert re.fullmatch(rf"pykaldist train: ERROR: process \d on {HERE}: a limit on file size or disk quota was reached while writing "
                        rf"{re.escape(str(tmp_path))}/exp/ckpt/\S+; raise it and run the same command again\.\n", err)
    assert not (tmp_path / "exp" / "final.pt").exists()


def test_a_damaged_checkpoint_of_one_worker(store, tmp_path, reference):
    shutil.copytree(reference, tmp_path / "exp")
    (tmp_path / "exp" / "final.pt").unlink()
    newest = list(Checkpoints(tmp_path / "exp" / "ckpt").files().values())[-1][1]
    newest.write_bytes(newest.read_bytes()[:-10])
    status, out, err = Run(store, tmp_path / "exp").end()
    assert status == 0 and "checksum does not match" in err and "resuming at epoch" in out
    assert_same(tmp_path / "exp", reference)


def test_train_sh_tries_again(store, tmp_path, reference, root):
    """After a killed process, on its own; after an error, not."""
    exp = tmp_path / "exp"
    env = in_a_recipe(root)
    command = [str(root / "steps" / "nnet" / "train.sh"), "--retries", "1", *OPTIONS, *JOB, str(store), str(exp)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, cwd=tmp_path)
    os.kill(wait_for_epochs(process, exp, 2)[1], signal.SIGKILL)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert "was killed by signal 9" in err and "goes on from the last checkpoint, try 2 of 2" in err and "network in" in out
    assert "was killed" in (exp / "log" / "train.before.log").read_text() and "resuming at epoch" in (exp / "log" / "train.log").read_text()
    assert_same(exp, reference)

    command = [*command[:-2], "--momentum", "1.5", str(store), str(tmp_path / "error")]
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=tmp_path)
    assert done.returncode == 1 and "--momentum 1.5" in done.stderr and "try 2" not in done.stderr


def test_train_sh_is_terminated(store, tmp_path, root):
    exp = tmp_path / "exp"
    long = ["--learn-rates", ",".join(["0.002"] * 1000)]  # not over before the signal comes
    command = [str(root / "steps" / "nnet" / "train.sh"), *OPTIONS, *long, *JOB, str(store), str(exp)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=in_a_recipe(root), cwd=tmp_path)
    pids = wait_for_epochs(process, exp, 1)
    process.terminate()
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 143 and "network in" not in out, err
    deadline = time.monotonic() + 20  # a second signal, to the shell that waits, would end it before the job's last word
    while "terminated; run the same command again" not in (exp / "log" / "train.log").read_text() or any(map(alive, pids.values())):
        assert time.monotonic() < deadline, (exp / "log" / "train.log").read_text()
        time.sleep(0.05)
