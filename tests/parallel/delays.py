"""Asynchronous strategies over real processes, with workers that take their time at random: nothing hangs, nothing is lost.

    mpiexec -n 4 python -m mpi4py tests/parallel/delays.py --runs 100 --steps 200

Worker k's moves are all the same, 1 in place k of its model and 0 elsewhere, so that a model says whose moves it holds, and how many. Each
run draws the delays of computing, of going from one place of the model to the next, and of answering anew. Prints a line for each
strategy; a wrong sum ends it with an error.
"""

from __future__ import annotations

import argparse
import random
import time

import torch
from movers import Descender

from pykaldist.parallel.engines.concurrent import ConcurrentHost
from pykaldist.parallel.fabric.processes import SplittableProcesses
from pykaldist.parallel.strategies.adpsgd import Adpsgd, AdpsgdOptions
from pykaldist.parallel.strategies.asgd import Asgd, AsgdOptions
from pykaldist.parallel.strategies.hadpsgd import Hadpsgd, HadpsgdOptions

STRATEGIES = {
    "asgd": lambda: Asgd(AsgdOptions(staleness_discount=False)),
    "asgd, max distance 4": lambda: Asgd(AsgdOptions("shards", max_distance=4, staleness_discount=False)),
    "asgd, two servers": lambda: Asgd(AsgdOptions(servers=2, staleness_discount=False)),
    "adpsgd, ring": lambda: Adpsgd(AdpsgdOptions(pattern="ring")),
    "adpsgd, random-ring": lambda: Adpsgd(AdpsgdOptions(pattern="random-ring")),
    "adpsgd, pairwise": lambda: Adpsgd(AdpsgdOptions("shards", "pairwise")),
    "hadpsgd": lambda: Hadpsgd(HadpsgdOptions(group_size=2)),
}


SLOTS = 8


def epoch(processes: SplittableProcesses, name: str, steps: int, seed: int, workers: int | None = None) -> int:
    """An epoch of `steps` moves in all; checks what came of it. Updates pushed, of asgd."""
    size = workers or processes.size
    strategies = [STRATEGIES[name]() for _ in range(size)]
    host = ConcurrentHost(size, processes, strategies[0].fault_tolerant, ["here"] * processes.size)
    generator = random.Random(1000 * seed + processes.rank)
    slow = [random.Random(seed).choice((0.0, 2e-4, 1e-3)) for _ in range(size)]

    def move(rank: int) -> torch.Tensor:
        time.sleep(slow[rank] * generator.random())
        return torch.eye(size, dtype=torch.float64)[rank]

    those = [Descender(lambda worker, rank=rank: move(rank), steps // size, torch.zeros(size, dtype=torch.float64)) for rank in host.ranks]
    for worker in those:
        worker.before_part = lambda: time.sleep(1e-4 * generator.random())
        worker.optimizer.goes_map_by_map = seed % 2 == 0
        worker.sampler.of_split = lambda split, worker=worker: worker.sampler
    own = [strategies[rank] for rank in host.ranks]
    for strategy in own:
        answer = getattr(strategy, "_answer", None)
        if answer is not None:
            strategy._answer = lambda *call, answer=answer: (time.sleep(2e-4 * generator.random()), answer(*call))[1]
    host.workers = those
    host.begin_epoch()
    host.run([s.epoch(w, fabric) for s, w, fabric in zip(own, those, host.fabrics, strict=True)])
    done = torch.zeros(size, dtype=torch.float64)
    for rank, worker in zip(host.ranks, those, strict=True):
        done[rank] = worker.index
    host.processes.sum(done, 1.0)
    pushes = int(host.processes.control([sum(sum(fabric.staleness.values()) for fabric in host.fabrics)])[0])
    total = steps // size * size
    assert int(done.sum()) == total, f"{name}: {int(done.sum())} moves of {total}"
    expected = done if isinstance(own[0], Asgd) else done / size
    assert all(abs(strategy.age - total / size) < 1e-6 for strategy in own if type(strategy) is Adpsgd), f"{name}: steps are lost"
    for worker in those:
        assert torch.allclose(worker.params, expected), f"{name}: {worker.params.tolist()}, expected {expected.tolist()}"
    host.processes.barrier()
    if host.transport:
        slots = len(host.transport._slots._mine)
        assert slots <= SLOTS * len(own), f"{name}: {slots} slots for {len(own)} workers"
        host.transport.close()
    return pushes


def main() -> None:
    from pykaldist.parallel.fabric.mpi import Mpi

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--steps", type=int, default=200, help="of each worker")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    processes = Mpi()
    for name in STRATEGIES:
        before = time.perf_counter()
        pushes = [epoch(processes, name, args.steps * processes.size, args.seed + run) for run in range(args.runs)]
        if processes.rank == 0:
            print(f"{name:22s} {args.runs} runs of {args.steps} steps on {processes.size} ranks: every move counted once; "
                  f"{sum(pushes)} exchanges; {time.perf_counter() - before:.1f} s", flush=True)


if __name__ == "__main__":
    main()
