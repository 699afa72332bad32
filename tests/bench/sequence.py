"""Throughput of sMBR: an epoch of it over one of cross-entropy, on one core, and two MPI ranks over one.

    tests/bench/run.sh sequence --store exp/dnn/store --denlats exp/dnn_smbr/denlats [--objective mpe] [--frames 60000] [--runs 5]

The network has 4 x 512 hidden units with random weights, and the frame store's dimensions (AN4's: 440-512x4-741); lattices and utterances
are real. One thread a process. By turns, in each run: an epoch of cross-entropy with minibatches of 256 frames (`xent`), and one of the
objective (`one`), on the same utterances, with one worker in the first rank while the others sleep; then with a worker in each rank an
epoch of cross-entropy (`xent ranks`), which says what the machine's second core gives, and one of the objective (`ranks`). Every worker has
about `--frames` frames, of utterances drawn at random. Medians over runs, and spreads.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import torch
from ranks import on_ranks

from pykaldist.frames.sampler import Partition, Sampler
from pykaldist.frames.sequences import SequenceOptions, SequenceSampler
from pykaldist.frames.store import FrameStore, pack
from pykaldist.nnet.dnn import DnnOptions, make_dnn
from pykaldist.nnet.init import init_dnn
from pykaldist.nnet.learner import Supervised
from pykaldist.nnet.objective import CrossEntropy, Objective
from pykaldist.nnet.objectives import OBJECTIVES
from pykaldist.optim.registry import FRAME_OPTIMIZERS, make_optimizer
from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.fabric.processes import Processes
from pykaldist.parallel.fabric.worker import Worker
from pykaldist.parallel.strategies.base.registry import make_strategy, strategy_options

UNITS, LAYERS, SPLICE = 512, 4, 5
RATE = 1e-5
POLL_SECONDS = 0.01


class Team:
    """A worker in each process, and its strategy; the network is `init_dnn`'s with one seed."""

    def __init__(self, store: FrameStore, objective: Objective, args: argparse.Namespace, processes: Processes | None = None) -> None:
        workers = processes.size if processes else 1
        self.host = Host(workers, processes)
        inputs, pdfs, splice = (2 * SPLICE + 1) * store.manifest.dim, store.manifest.num_pdfs, list(range(-SPLICE, SPLICE + 1))
        how = (splice, torch.zeros(inputs), torch.ones(inputs), 0, torch.device("cpu"))
        sampler: Sampler
        if objective.whole_utterances:
            objective.prepare(store, store)
            cut = SequenceOptions(sequences="whole", num_streams=args.minibatch_utts)
            sampler = SequenceSampler(store, Partition(store, workers, level="utterance"), self.host.ranks[0], cut, *how, padded=False)
        else:
            sampler = Sampler(store, Partition(store, workers), self.host.ranks[0], 256, *how)
        shape = DnnOptions(LAYERS, UNITS)
        model = make_dnn(shape, inputs, pdfs)
        init_dnn(model, shape, torch.Generator().manual_seed(0))
        self.worker = Worker(make_optimizer(args.optimizer, Supervised(model, objective), FRAME_OPTIMIZERS[args.optimizer][0]()), sampler)
        self.strategy = make_strategy(args.strategy, strategy_options(args.strategy)(average_period=args.average_period))
        self.host.workers = [self.worker]

    def epoch(self, number: int) -> float:
        """Seconds of an epoch."""
        self.worker.begin_epoch(number, RATE)
        self.host.processes.barrier()
        self.host.begin_epoch()
        before = time.perf_counter()
        self.host.run([self.strategy.epoch(self.worker, self.host.fabrics[0])])
        return self.host.largest([time.perf_counter() - before])


def of_frames(store: FrameStore, frames: int, path: Path) -> FrameStore:
    """A store of utterances of `store`, drawn at random, until they have so many frames."""
    order = np.random.default_rng(0).permutation(len(store.utts))
    lengths = np.diff(store.offsets)[order]
    if lengths.sum() < frames:
        sys.exit(f"sequence.py: ERROR: {store.path} has {lengths.sum()} frames, fewer than {frames}; lower --frames.")
    chosen = order[: int(np.searchsorted(lengths.cumsum(), frames)) + 1]
    rows = {store.utts[u]: slice(store.offsets[u], store.offsets[u + 1]) for u in chosen}
    pack(list(rows), lambda utt: np.asarray(store.feats[rows[utt]], np.float32), lambda utt: np.asarray(store.targets[rows[utt]]),
         store.manifest.num_pdfs, path, str(store.feats.dtype))
    return FrameStore(path)


def measure(folder: Path, args: argparse.Namespace) -> None:
    from pykaldist.parallel.fabric.mpi import Mpi

    processes = Mpi()
    first, ranks = processes.rank == 0, processes.size
    if first:
        for n in (1, ranks):
            of_frames(FrameStore(args.store / "train"), n * args.frames, folder / str(n))
    processes.barrier()
    kind = OBJECTIVES[args.objective]

    def objective() -> Objective:
        return kind(kind.options_class(denlats=str(args.denlats), minibatch_utts=args.minibatch_utts))

    all_of_them, own = FrameStore(folder / str(ranks)), FrameStore(folder / "1")
    together, control = Team(all_of_them, objective(), args, processes), Team(all_of_them, CrossEntropy(), args, processes)
    teams = {"xent": Team(own, CrossEntropy(), args), "one": Team(own, objective(), args)} if first else {}
    seconds: dict[str, list[float]] = {name: [] for name in ("xent", "one", "xent ranks", "ranks")}
    for run in range(args.runs + 1):  # the first warms up
        took = {name: team.epoch(run) for name, team in teams.items()}
        done = folder / f"run{run}"
        if first:
            done.touch()
        while not done.exists():  # asleep: a rank that waits in MPI is busy
            time.sleep(POLL_SECONDS)
        took["xent ranks"], took["ranks"] = control.epoch(run), together.epoch(run)
        if run and first:
            for name, found in seconds.items():
                found.append(took[name])
    together.host.close()
    if first:
        report(seconds, len(own), len(all_of_them), together, args)


def report(seconds: dict[str, list[float]], frames: int, frames_of_ranks: int, together: Team, args: argparse.Namespace) -> None:
    ranks, manifest = together.host.processes.size, together.worker.sampler.partition.store.manifest
    print(f"{(2 * SPLICE + 1) * manifest.dim}-{UNITS}x{LAYERS}-{manifest.num_pdfs}, {args.optimizer}, {args.objective} by "
          f"{args.minibatch_utts} utterances, {args.strategy}, average period {args.average_period}, {frames:,} frames a worker, "
          f"{args.runs} runs, one thread a process")
    of = {"xent": (1, frames), "one": (1, frames), "xent ranks": (ranks, frames_of_ranks), "ranks": (ranks, frames_of_ranks)}
    rates = {name: [of[name][1] / s for s in own] for name, own in seconds.items()}
    for name, own in rates.items():
        print(f"{name:10s} {of[name][0]:2d} workers {statistics.median(own):9.0f} frames/s ({min(own):.0f} to {max(own):.0f})")
    for what, over, under in ((f"{args.objective} over xent", "one", "xent"), (f"{ranks} ranks over one", "ranks", "one"),
                              (f"{ranks} ranks over one, xent", "xent ranks", "xent")):
        ratio = [a / b for a, b in zip(rates[over], rates[under], strict=True)]
        print(f"{what}: {statistics.median(ratio):.2f} ({min(ratio):.2f} to {max(ratio):.2f})")
    spent = together.host.fabrics[0].seconds
    print("of the first rank's time: " + ", ".join(f"{name} {100 * s / sum(spent.values()):.1f} %" for name, s in spent.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, required=True, help="frame store, a folder with train/")
    parser.add_argument("--denlats", type=Path, required=True, help="lattice store of its utterances (pykaldist pack-lattices)")
    parser.add_argument("--objective", default="smbr", choices=("smbr", "mpe", "mmi"))
    parser.add_argument("--minibatch-utts", type=int, default=1, help="utterances in a minibatch (1)")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--strategy", default="ma", choices=("ma", "bmuf"))
    parser.add_argument("--optimizer", default="sgd", choices=tuple(FRAME_OPTIMIZERS))
    parser.add_argument("--average-period", type=int, default=10, help="minibatches between averages (10)")
    parser.add_argument("--frames", type=int, default=60000, help="of each worker")
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    on_ranks(args.ranks, lambda folder: measure(folder, args))


if __name__ == "__main__":
    main()
