"""`tests/run.sh --gpu`: its status without a GPU, its table, and its checks, on the emulated device as far as that goes."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import gpu_check
import pytest
import test_launches
import torch
from gpu_check import Row, calls_between, render
from trained import launches_of_minibatches

from pykaldist.nnet.dnn import DnnOptions
from pykaldist.nnet.lstm import LstmOptions
from pykaldist.optim.registry import FRAME_OPTIMIZERS

SMALL = {"dnn": gpu_check.NETWORKS["dnn"]}


def test_without_a_gpu_it_says_so_in_one_line_with_a_status_of_its_own(root):
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYKALDIST_PYTHON": sys.executable}
    done = subprocess.run([root / "tests" / "run.sh", "--gpu"], env=env, capture_output=True, text=True)
    assert done.returncode == 77
    assert done.stdout == "" and len(done.stderr.splitlines()) == 1 and "no CUDA device" in done.stderr


def test_the_table():
    text = render([Row("a", "1", "2", True), Row("b", "3"), Row("c", "4", "1", False)], "8 x Abacus.")
    assert text.splitlines()[:3] == ["8 x Abacus.", "", "| check | found | wanted, at most or at least | as wanted |"]
    assert "| a | 1 | 2 | yes |" in text and "| b | 3 | | |" in text and "| c | 4 | 1 | **no** |" in text
    assert text.endswith("1 of 3 rows are not as wanted.")
    assert render([Row("a", "1")], "").endswith("All is as wanted.")


def test_what_fails_and_what_comes_too_late_is_not_as_wanted(capsys):
    def broken(folder, device, until):
        yield Row("first", device, good=True)
        raise RuntimeError("it broke\nhere")

    rows = gpu_check.run({"broken": broken}, "cuda:0", time.monotonic() + 60)
    assert rows == [Row("first", "cuda:0", "", True), Row("broken", "RuntimeError: it broke", "to the end", False)]
    late = gpu_check.run({"broken": broken, "next": broken}, "cuda:0", time.monotonic() - 1)
    assert late == [Row(name, "TimeoutError: the time is over", "to the end", False) for name in ("broken", "next")]
    assert "RuntimeError: it broke" in capsys.readouterr().err


def test_a_command_that_hangs_ends_with_the_time(tmp_path, monkeypatch):
    """With what it has started; and a row says so."""
    hangs = f"""import subprocess, time
with open({str(tmp_path / "pid")!r}, "w") as file:
    print(subprocess.Popen(["sleep", "600"]).pid, file=file)
time.sleep(600)"""
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"^it ran out of time$"):
        gpu_check.finished("it", [sys.executable, "-S", "-c", hangs], began + 5.0)
    pid = int((tmp_path / "pid").read_text())
    assert wait_for(lambda: is_over(pid)) and time.monotonic() < began + 300
    assert gpu_check.finished("it", [sys.executable, "-S", "-c", "print(7)"], time.monotonic() + 300).stdout == "7\n"

    monkeypatch.setattr(gpu_check, "JOB_SECONDS", 0.0)
    monkeypatch.setattr(gpu_check, "possible_fabrics", lambda gpus: {"gloo": ""})
    monkeypatch.setattr(gpu_check, "train", lambda *options: torch.zeros(1))
    rows = gpu_check.run({"fabrics": gpu_check.fabrics}, "cpu", time.monotonic() + 300)
    assert rows == [Row("fabrics", "TimeoutError: the job gloo-ma ran out of time", "to the end", False)]
    monkeypatch.setattr(gpu_check, "TESTS", (str(tmp_path),))
    (row,) = gpu_check.run({"tests": gpu_check.the_tests}, "cpu", time.monotonic() + 0.2)
    assert row == Row("tests", "TimeoutError: pytest ran out of time", "to the end", False)


def wait_for(what, seconds=60.0):
    until = time.monotonic() + seconds
    while not what() and time.monotonic() < until:
        time.sleep(0.05)
    return what()


def is_over(pid):
    """Whether a process has ended, be it that nobody has asked for its status."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_every_file_with_tests_marked_gpu_is_run_there_or_left_out_by_name(root):
    files = {str(path.relative_to(root)) for path in (root / "tests").rglob("test_*.py") if "pytest.mark.gpu" in path.read_text()}
    run = {name for name in files if any(Path(name).is_relative_to(folder) for folder in gpu_check.TESTS)}
    assert len(run) > 15 and files - run == set(gpu_check.WITHOUT) and all(gpu_check.WITHOUT.values())


def test_calls_are_counted_between_marks():
    def event(name, start):
        return SimpleNamespace(name=name, time_range=SimpleNamespace(start=start))

    events = [event(gpu_check.MARK, 10 * k) for k in range(8)]
    events += [event("cudaLaunchKernel", 10 * k + j) for k in range(8) for j in (1, 2, 3)] + [event("cudaGraphLaunch", 35)]
    events += [event("cudaStreamSynchronize", 45), event("cudaEventSynchronize", 46), event("cudaStreamSynchronize", 75)]
    assert calls_between(events) == (3.25, 0.25)
    with pytest.raises(RuntimeError, match="has seen 3 minibatches"):
        calls_between(events[:3])


def test_which_fabrics_are_possible(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    assert gpu_check.possible_fabrics(1)["nccl"] == "there is one GPU"
    assert gpu_check.possible_fabrics(2)["nccl"] == gpu_check.possible_fabrics(2)["gloo"] == ""
    monkeypatch.setattr(gpu_check, "mpiexec", lambda: None)
    assert gpu_check.possible_fabrics(2)["mpi"] == "there is no MPI"


@pytest.mark.gpu
def test_parity(cuda, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_check, "NETWORKS", SMALL)
    rows = list(gpu_check.parity(tmp_path, "cuda:0", math.inf))
    assert len(rows) == len(FRAME_OPTIMIZERS) + 1 and all(row.good for row in rows), rows
    trained = gpu_check.train
    monkeypatch.setattr(gpu_check, "train", lambda store, exp, *options: trained(store, exp, *options) * (1 + 1e-6 * ("cuda:0" in options)))
    assert not any(row.good for row in gpu_check.parity(tmp_path, "cuda:0", math.inf) if "parameters" in row.what)


@pytest.mark.gpu
def test_launches_are_counted(cuda, tmp_path, monkeypatch):
    if cuda is None:
        pytest.skip("counts the launches of the emulated device")
    monkeypatch.setattr(test_launches, "BUDGET", {"dnn, ngsgd": test_launches.BUDGET["dnn, ngsgd"]})

    def calls(work):
        with launches_of_minibatches(cuda) as found:
            work()
        return (found[-2] - found[-6]) / 4, 0.0

    monkeypatch.setattr(gpu_check, "calls", calls)
    assert [row.good for row in gpu_check.launches(tmp_path, "cuda:0", math.inf)] == [True, True]


@pytest.mark.gpu
@pytest.mark.parametrize("nnet", [DnnOptions(1, 8), LstmOptions(hid_layers=1, hid_dim=4, num_streams=2)])
def test_rates_are_measured(cuda, tmp_path, nnet):
    assert gpu_check.rate(tmp_path, nnet, 16, "sgd", "float32", torch.device("cuda:0"), 0.0, 5, [64, 64]) > 0.0


@pytest.mark.gpu
def test_memory_beside_the_ledger(cuda, tmp_path):
    options = ["--hid-layers", "2", "--hid-dim", "64", "--minibatch-size", "64"]
    row = gpu_check.memory_of(tmp_path, "cuda:0", "dnn", options, [200, 200])
    assert row.good and row.wanted.endswith("GB and 5 %")
