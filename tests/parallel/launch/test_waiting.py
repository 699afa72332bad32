"""A thread or process that waits sleeps: shares of time that are CPU time, which a loaded machine makes smaller, not larger."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from pykaldist import WAITING

THREADS = """
import pykaldist, time, torch  # in this order
torch.set_num_threads(2)
vector = torch.ones(1 << 17)
vector.add_(1.0)
wall, cpu = time.perf_counter(), time.process_time()
for _ in range(100):
    vector.add_(1.0)
    time.sleep(0.005)
print((time.process_time() - cpu) / (time.perf_counter() - wall))
"""
RANKS = """
import time, numpy, torch
from pykaldist.parallel.fabric.mpi import Mpi
torch.set_num_threads(1)
processes = Mpi()
buffer = torch.ones(1000)
exchanges = {"control": lambda: processes.control([1.0]), "sum": lambda: processes.sum(buffer, 0.5),
             "gather": lambda: processes.gather(buffer), "scatter": lambda: processes.scatter([buffer, buffer]),
             "broadcast": lambda: processes.broadcast(buffer)}
for name, exchange in exchanges.items():
    exchange()
    if processes.rank == 0:
        time.sleep(0.5)
    wall, cpu = time.perf_counter(), time.process_time()
    exchange()
    if processes.rank == 1:
        print(name, (time.process_time() - cpu) / (time.perf_counter() - wall))
"""


def environment(root: Path, **own: str) -> dict[str, str]:
    """This one's, without settings of waiting but `own`."""
    kept = {name: value for name, value in os.environ.items() if name not in (*WAITING, "OMP_WAIT_POLICY", "OMP_NUM_THREADS")}
    return {**kept, "PYTHONPATH": str(root), **own}


def python(root: Path, *words: str, **own: str) -> str:
    done = subprocess.run([sys.executable, *words], env=environment(root, **own), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="with one core OpenMP does not spin")
def test_a_thread_that_waits_for_work_sleeps(root):
    assert float(python(root, "-c", THREADS)) < 0.2  # with OpenMP's own setting it is 1


def test_the_setting_reaches_openmp_in_a_verb(root):
    if not any(Path(torch.__file__).with_name("lib").glob("libgomp*")):
        pytest.skip("PyTorch's OpenMP is not GNU's")
    shown = python(root, "-m", "pykaldist", "train", "--help", OMP_DISPLAY_ENV="VERBOSE")
    assert f"GOMP_SPINCOUNT = '{WAITING['GOMP_SPINCOUNT']}'" in shown
    assert "GOMP_SPINCOUNT = '7'" in python(root, "-m", "pykaldist", "train", "--help", OMP_DISPLAY_ENV="VERBOSE", GOMP_SPINCOUNT="7")


def test_who_chose_a_policy_keeps_it(root):
    code = "import os, pykaldist; print(*[os.environ.get(name) for name in pykaldist.WAITING])"
    assert python(root, "-c", code).split() == list(WAITING.values())
    assert python(root, "-c", code, OMP_WAIT_POLICY="active").split() == ["None", "None", "1"]
    assert python(root, "-c", code, KMP_BLOCKTIME="9").split()[1] == "9"


def test_a_rank_that_waits_for_another_sleeps(root):
    mpiexec = Path(sys.executable).with_name("mpiexec")
    if not mpiexec.exists():
        pytest.skip(f"no {mpiexec}: a Python of the user's own, without the mpich of requirements.txt")
    done = subprocess.run([mpiexec, "-n", "2", sys.executable, "-m", "mpi4py", "-c", RANKS], env=environment(root), capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    shares = {name: float(share) for name, share in map(str.split, done.stdout.splitlines())}
    assert set(shares) == {"control", "sum", "gather", "scatter", "broadcast"}
    assert max(shares.values()) < 0.1, shares  # MPI's own waiting takes the whole core
