"""Throughput of several workers: two MPI ranks over one, and many virtual workers over as many times one.

    tests/bench/run.sh workers                                  # 440-512x4-712, minibatch 256, period 10, two ranks and 32 virtual workers
    tests/bench/run.sh workers --virtual 8 --runs 1 --frames 15360
    tests/bench/run.sh workers --strategy adpsgd --pattern pairwise
    tests/bench/run.sh workers --dtype bf16                     # on a CPU that multiplies bfloat16

One thread a process. Each run trains an epoch with one worker (`one`) and one with many virtual workers (`virtual`) in the first rank,
while the others sleep; and one with a worker in each of the ranks (`ranks`). Every worker has `--frames` frames. An epoch is timed from
where all begin to where the last of them ends. Medians over runs, with their spread: frames/s; speed-up of the ranks; seconds of N virtual
workers over N times those of one worker. Asynchronous strategies have no virtual workers but simulated ones, which are left out.
A machine that others use too has no second core for the ranks: there the speed-up by CPU seconds tells more, those of one worker over
those of the rank that took most, in which waiting counts as far as it is busy.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
import time
from pathlib import Path

import numpy as np
import torch
from machine import machine, possible
from ranks import on_ranks

from pykaldist.frames.sampler import Partition, Sampler
from pykaldist.frames.store import FrameStore, pack
from pykaldist.nnet.arithmetic import arithmetic
from pykaldist.nnet.dnn import DnnOptions, make_dnn
from pykaldist.nnet.init import init_dnn
from pykaldist.nnet.learner import Supervised
from pykaldist.nnet.objective import CrossEntropy
from pykaldist.optim.registry import FRAME_OPTIMIZERS, make_optimizer
from pykaldist.parallel.engines.concurrent import ConcurrentHost
from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.fabric.processes import Processes
from pykaldist.parallel.fabric.worker import Worker
from pykaldist.parallel.strategies.adpsgd import PATTERNS
from pykaldist.parallel.strategies.base.registry import make_strategy, strategies, strategy_class, strategy_options

INPUTS, UNITS, LAYERS, PDFS = 440, 512, 4, 712
RATE = 1e-5
POLL_SECONDS = 0.01


class Team:
    """The workers of one host, and their strategies."""

    def __init__(self, store: FrameStore, workers: int, args: argparse.Namespace, processes: Processes | None = None) -> None:
        own = {"average_period": args.average_period, "pattern": args.pattern}
        accepted = {f.name for f in dataclasses.fields(strategy_options(args.strategy))}
        options = strategy_options(args.strategy)(**{name: value for name, value in own.items() if name in accepted})
        strategy = make_strategy(args.strategy, options)
        self.host = Host(workers, processes) if not strategy.independent else \
            ConcurrentHost(workers, processes, strategy.fault_tolerant, [""] * workers)
        zeros, ones = torch.zeros(INPUTS), torch.ones(INPUTS)
        sampler = Sampler(store, Partition(store, workers), 0, args.minibatch_size, list(range(-5, 6)), zeros, ones, 0, torch.device("cpu"))
        shape = DnnOptions(LAYERS, UNITS)
        self.workers, self.strategies = [], []
        for rank in self.host.ranks:
            model = make_dnn(shape, INPUTS, PDFS, torch.device("cpu"), *arithmetic(args.dtype, torch.device("cpu")))
            init_dnn(model, shape, torch.Generator().manual_seed(0))
            if self.workers:
                model.share_activations(self.workers[0].learner.model)
            optimizer = make_optimizer(args.optimizer, Supervised(model, CrossEntropy()), FRAME_OPTIMIZERS[args.optimizer][0]())
            self.workers.append(Worker(optimizer, sampler.of_split(rank)))
            self.strategies.append(make_strategy(args.strategy, options))
        self.host.workers = self.workers

    def epoch(self, number: int) -> tuple[float, float]:
        """An epoch: its seconds, and the CPU seconds of the rank that took most."""
        for worker in self.workers:
            worker.begin_epoch(number, RATE)
        self.host.processes.barrier()
        self.host.begin_epoch()
        before, cpu_before = time.perf_counter(), time.process_time()
        self.host.run([s.epoch(w, f) for s, w, f in zip(self.strategies, self.workers, self.host.fabrics, strict=True)])
        took, cpu = time.perf_counter() - before, time.process_time() - cpu_before
        return self.host.largest([took]), self.host.largest([cpu])


def random_store(path: Path, frames: int) -> FrameStore:
    """The first rank writes it, the others wait."""
    rng, length, dim = np.random.default_rng(0), 1024, INPUTS // 11
    utts = [f"utt{i}" for i in range(-(-frames // length))]
    lengths = {utt: min(length, frames - i * length) for i, utt in enumerate(utts)}
    pack(utts, lambda utt: rng.standard_normal((lengths[utt], dim), np.float32), lambda utt: rng.integers(0, PDFS, lengths[utt]), PDFS,
         path, "float16")
    return FrameStore(path)


def measure(folder: Path, args: argparse.Namespace) -> None:
    from pykaldist.parallel.fabric.mpi import Mpi

    processes = Mpi()
    first, ranks = processes.rank == 0, processes.size
    virtual = [] if strategy_class(args.strategy).asynchronous else [("virtual", args.virtual)]
    if first:
        stores = {n: random_store(folder / str(n), n * args.frames) for n in {1, ranks, *(n for _, n in virtual)}}
    processes.barrier()
    if not first:
        stores = {ranks: FrameStore(folder / str(ranks))}
    together = Team(stores[ranks], ranks, args, processes)
    teams = {name: Team(stores[n], n, args) for name, n in (("one", 1), *virtual)} if first else {}
    seconds: dict[str, list[tuple[float, float]]] = {"one": [], "ranks": [], **{name: [] for name, _ in virtual}}
    for run in range(args.runs + 1):  # the first warms up
        took = {name: team.epoch(run) for name, team in teams.items()}
        done = folder / f"run{run}"
        if first:
            done.touch()
        while not done.exists():  # asleep: a rank that waits in MPI is busy
            time.sleep(POLL_SECONDS)
        took["ranks"] = together.epoch(run)
        if run and first:
            for name, own in seconds.items():
                own.append(took[name])
    together.host.close()
    if first:
        report(seconds, ranks, together, args)


def spread(values: list[float], digits: int = 2) -> str:
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def report(seconds: dict[str, list[tuple[float, float]]], ranks: int, together: Team, args: argparse.Namespace) -> None:
    frames = f"{args.frames:,} frames a worker, {args.runs} runs"
    print(machine())
    how = f"pattern {args.pattern}" if args.strategy.endswith("adpsgd") else f"average period {args.average_period}"
    print(f"{INPUTS}-{UNITS}x{LAYERS}-{PDFS}, {args.optimizer}, {args.strategy}, {how}, {args.dtype}, minibatch {args.minibatch_size}, "
          f"{frames}, one thread a process")
    workers = {"one": 1, "ranks": ranks, "virtual": args.virtual}
    for name, own in seconds.items():
        print(f"{name:8s} {workers[name]:3d} workers {spread([workers[name] * args.frames / s for s, _ in own], 0)} frames/s")
    together_and_alone = list(zip(seconds["one"], seconds["ranks"], strict=True))
    print(f"{ranks} ranks over one: {spread([ranks * one / s for (one, _), (s, _) in together_and_alone])}; by CPU seconds "
          f"{spread([ranks * one / cpu for (_, one), (_, cpu) in together_and_alone])}; load {os.getloadavg()[0]:.0f}")
    if "virtual" in seconds:
        ratio = [s / (args.virtual * one) for (one, _), (s, _) in zip(seconds["one"], seconds["virtual"], strict=True)]
        print(f"{args.virtual} virtual workers over {args.virtual} times one: {spread(ratio, 3)}")
    spent = together.host.fabrics[0].seconds
    print("of the first rank's time: " + ", ".join(f"{name} {100 * s / sum(spent.values()):.1f} %" for name, s in spent.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--virtual", type=int, default=32)
    parser.add_argument("--strategy", default="ma", choices=strategies())
    parser.add_argument("--optimizer", default="sgd", choices=tuple(FRAME_OPTIMIZERS))
    parser.add_argument("--dtype", default="float32", choices=("float32", "bf16"))
    parser.add_argument("--minibatch-size", type=int, default=256)
    parser.add_argument("--average-period", type=int, default=10)
    parser.add_argument("--pattern", default="ring", choices=PATTERNS)
    parser.add_argument("--frames", type=int, default=30720, help="of each worker")
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    if possible(args.dtype, lambda: arithmetic(args.dtype, torch.device("cpu"))) is None:
        return
    on_ranks(args.ranks, lambda folder: measure(folder, args))


if __name__ == "__main__":
    main()
