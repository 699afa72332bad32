"""Asynchronous workers over processes, which are threads here, and in one slow test MPI's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from delays import STRATEGIES, epoch

from pykaldist.errors import UserError
from pykaldist.parallel.concurrent import Concurrent
from pykaldist.parallel.strategies.hadpsgd import Hadpsgd, HadpsgdOptions

HERE = Path(__file__).parent


@pytest.mark.parametrize("workers", [4, 8])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_nothing_is_lost(in_processes, strategy, workers):
    pushes = in_processes(4, lambda those: epoch(those, strategy, 25 * workers, workers, workers))
    assert len(set(pushes)) == 1 and pushes[0] > 0


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if not name.startswith("hadpsgd")])
def test_workers_of_one_process_take_turns(strategy):
    from pykaldist.parallel.processes import Alone

    assert epoch(Alone(), strategy, 60, 0, 3) > 0


def test_groups_that_processes_cut_through_are_refused(in_processes):
    def work(those):
        host = Concurrent(6, those, False, ["here"] * 2)
        strategies = [Hadpsgd(HadpsgdOptions(group_size=2)) for _ in host.ranks]
        workers = [type("Worker", (), {"params": torch.zeros(2)})() for _ in host.ranks]
        with pytest.raises((UserError, RuntimeError)) as refused:
            host.run([s.epoch(w, fabric) for s, w, fabric in zip(strategies, workers, host.fabrics, strict=True)])
        return str(refused.value)

    words = in_processes(2, work)  # one of them may say it first, and end the other
    assert any("the workers 2 to 3 are to go in step, and the processes that host them host others too" in one for one in words)
    assert all("are to go in step" in one or "has failed" in one for one in words)


@pytest.mark.slow
def test_four_ranks_with_random_delays():
    mpiexec = Path(sys.executable).with_name("mpiexec")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}
    command = [str(mpiexec), "-n", "4", sys.executable, "-m", "mpi4py", str(HERE / "delays.py"), "--runs", "100", "--steps", "200"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("100 runs of 200 steps on 4 ranks: every move counted once") == len(STRATEGIES)
