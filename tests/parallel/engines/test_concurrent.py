"""Asynchronous workers over processes, which are threads here, and in one slow test MPI's."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from delays import STRATEGIES, epoch

from pykaldist.errors import ProcessLostError, UserError
from pykaldist.parallel.engines.concurrent import NEWS_S, ConcurrentHost
from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.fabric.interface import WithinGroup
from pykaldist.parallel.fabric.processes import SingleProcess
from pykaldist.parallel.strategies.adpsgd import Adpsgd, AdpsgdOptions
from pykaldist.parallel.strategies.hadpsgd import Hadpsgd, HadpsgdOptions

HERE = Path(__file__).parents[1]


@pytest.mark.parametrize("workers", [4, 8])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_nothing_is_lost(in_processes, strategy, workers):
    """Steps that go along with what is mixed, and such that do not."""
    for seed in (0, 1):
        pushes = in_processes(4, lambda those, seed=seed: epoch(those, strategy, 25 * workers, seed, workers))
        assert len(set(pushes)) == 1 and pushes[0] > 0


@pytest.mark.parametrize("strategy", ["adpsgd, ring", "adpsgd, pairwise"])
def test_nothing_is_lost_where_no_memory_is_shared(in_processes, no_shared_memory, strategy):
    no_shared_memory()
    assert in_processes(3, lambda those: epoch(those, strategy, 150, 0, 6))[0] > 0


@pytest.mark.parametrize("optimizer, options", [("sgd", {}), ("ngsgd", {}), ("sgd", {"momentum": 0.5})])
@pytest.mark.parametrize("size, pattern", [(2, "pairwise"), (4, "random-ring")])
def test_all_updates_are_in_the_mean(in_processes, make_workers, optimizer, options, size, pattern):
    """Of networks trained on a store: the model is what they began with and a share of what each step has added to its worker's."""
    workers = [make_workers(size, [k], minibatch_size=4, optimizer=optimizer, dtype=torch.float64, **options)[0] for k in range(size)]
    start, added = workers[0].params.clone(), [torch.zeros_like(workers[0].params) for _ in workers]

    def watched(change, worker, total, pause):
        def changing(*args, **more):
            before = worker.params.clone()
            change(*args, **more)
            total.add_(worker.params - before)
            time.sleep(pause.random() * 2e-4)

        return changing

    for k, (worker, total) in enumerate(zip(workers, added, strict=True)):
        name = "_rule" if worker.optimizer.goes_map_by_map else "local_step"
        setattr(worker.optimizer, name, watched(getattr(worker.optimizer, name), worker, total, random.Random(k)))
        worker.begin_epoch(0, 0.05)

    def work(those):
        host = ConcurrentHost(size, those, True, ["here"] * 2)
        host.workers = [workers[k] for k in host.ranks]
        strategies = [Adpsgd(AdpsgdOptions(pattern=pattern)) for _ in host.ranks]
        host.begin_epoch()
        host.run([s.epoch(w, fabric) for s, w, fabric in zip(strategies, host.workers, host.fabrics, strict=True)])
        host.processes.barrier()
        host.transport.close()
        return sum(sum(fabric.staleness.values()) for fabric in host.fabrics)

    assert sum(in_processes(2, work)) > 0
    assert all(float(total.abs().max()) > 1e-3 for total in added)
    assert all(torch.allclose(worker.params, start + sum(added) / size, atol=1e-12) for worker in workers)


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if not name.startswith("hadpsgd")])
def test_workers_of_one_process_take_turns(strategy):

    assert epoch(SingleProcess(), strategy, 60, 0, 3) > 0


def test_groups_that_do_not_fill_their_processes_are_refused(in_processes):
    def work(those):
        host = ConcurrentHost(6, those, False, ["here"] * 2)
        strategies = [Hadpsgd(HadpsgdOptions(group_size=2)) for _ in host.ranks]
        workers = [type("Worker", (), {"params": torch.zeros(2)})() for _ in host.ranks]
        with pytest.raises((UserError, ProcessLostError)) as refused:
            host.run([s.epoch(w, fabric) for s, w, fabric in zip(strategies, workers, host.fabrics, strict=True)])
        return str(refused.value)

    words = in_processes(2, work)  # one of them may say it first, and end the other
    assert any("workers 2 to 3 form a synchronous group, and the processes that host them host other workers too" in one for one in words)
    assert all("form a synchronous group" in one or "has failed" in one for one in words)


@pytest.mark.slow
def test_four_ranks_with_random_delays():
    mpiexec = Path(sys.executable).with_name("mpiexec")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}
    command = [str(mpiexec), "-n", "4", sys.executable, "-m", "mpi4py", str(HERE / "delays.py"), "--runs", "100", "--steps", "200"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("100 runs of 200 steps on 4 ranks: every move counted once") == len(STRATEGIES)


def test_an_exchange_that_fails_waits_for_the_news_of_a_death(in_processes, monkeypatch):
    """Of one of the group: on it the thread that reads ends this process. So it must not say before that the job has failed."""
    waited = []
    monkeypatch.setattr("pykaldist.parallel.engines.concurrent.time", SimpleNamespace(sleep=waited.append))

    def lost(host, requests):
        raise ProcessLostError("the exchange has failed")

    monkeypatch.setattr(Host, "_within", lost)

    def exchange(those):
        host = ConcurrentHost(2, those, True, ["here"] * 2)
        with pytest.raises(ProcessLostError):
            host._within([WithinGroup(torch.zeros(1), 0.0, range(2), True)])
        host.close()

    in_processes(2, exchange)
    assert waited == [NEWS_S] * 2
