"""Small models in one process: V workers stacked, beside V workers one after the other, in one run.

    tests/bench/run.sh stacked                                       # one CPU thread; SGD with momentum, model averaging every 10
    tests/bench/run.sh stacked --models 4,32 --minibatch-sizes 256 --networks 39-64x2-100,429-512x4-712
    tests/bench/run.sh stacked --device cuda                         # where steps are recorded as graphs

An epoch of virtual workers, with loading and exchanges, of `--minibatches` full minibatches a worker. By turns, each run trains an epoch of
one worker alone, of V one after the other (`apart`), and of V stacked. Medians of the runs, with the range of the ratios.
"""

from __future__ import annotations

import argparse
import itertools
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from pykaldist.frames.sampler import Partition, Sampler
from pykaldist.frames.store import FrameStore, pack
from pykaldist.nnet.arithmetic import cpu
from pykaldist.nnet.dnn import DnnOptions, make_dnn
from pykaldist.nnet.init import init_dnn
from pykaldist.nnet.learner import Supervised
from pykaldist.nnet.objective import CrossEntropy
from pykaldist.optim.sgd import Sgd, SgdOptions
from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.fabric.stack import Stack
from pykaldist.parallel.fabric.worker import Worker
from pykaldist.parallel.strategies.base.registry import make_strategy, strategy_options

CONTEXT, RATE = 5, 1e-5


class Team:
    """Virtual workers on a store, stacked or not."""

    def __init__(self, store: FrameStore, network: tuple[int, int, int, int], workers: int, minibatch_size: int, args: argparse.Namespace,
                 stacked: bool) -> None:
        inputs, units, layers, pdfs = network
        device, options = torch.device(args.device), SgdOptions(momentum=args.momentum)
        width = inputs * (2 * CONTEXT + 1)
        sampler = Sampler(store, Partition(store, workers), 0, minibatch_size, list(range(-CONTEXT, CONTEXT + 1)), torch.zeros(width),
                          torch.ones(width), 0, device)
        shape = DnnOptions(layers, units)
        self.host, self.workers, self.strategies, self.device = Host(workers), [], [], device
        for rank in range(workers):
            model = make_dnn(shape, width, pdfs, device)
            init_dnn(model, shape, torch.Generator().manual_seed(0))
            if self.workers:
                model.share_activations(self.workers[0].learner.model)
            self.workers.append(Worker(Sgd(Supervised(model, CrossEntropy()), options), sampler.of_split(rank)))
            self.strategies.append(make_strategy(args.strategy, strategy_options(args.strategy)()))
        if stacked:
            self.host.stack_workers(Stack(self.workers, self.strategies[0].ships_gradients))

    def epoch(self, number: int) -> float:
        """Seconds of an epoch."""
        for worker in self.workers:
            worker.begin_epoch(number, RATE)
        self.host.begin_epoch()
        self._wait()
        before = time.perf_counter()
        self.host.run([s.epoch(w, f) for s, w, f in zip(self.strategies, self.workers, self.host.fabrics, strict=True)])
        self._wait()
        return time.perf_counter() - before

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def random_store(path: Path, frames: int, dim: int, pdfs: int) -> FrameStore:
    rng = np.random.default_rng(0)
    pack(["utt"], lambda _: rng.standard_normal((frames, dim), np.float32), lambda _: rng.integers(0, pdfs, frames), pdfs, path)
    return FrameStore(path)


def measure(network: str, models: int, minibatch_size: int, args: argparse.Namespace) -> None:
    """Print a row of the table."""
    match = re.fullmatch(r"(\d+)-(\d+)x(\d+)-(\d+)", network)
    if not match:
        sys.exit(f"--networks {network}: expected something like 39-64x2-100 (features, units x layers, pdfs)")
    inputs, units, layers, pdfs = map(int, match.groups())
    seconds: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        stores = {count: random_store(Path(folder) / str(count), count * args.minibatches * minibatch_size, inputs, pdfs)
                  for count in (1, models)}
        teams = {name: Team(stores[count], (inputs, units, layers, pdfs), count, minibatch_size, args, stacked)
                 for name, count, stacked in (("one", 1, False), ("apart", models, False), ("stacked", models, True))}
        size = len(teams["one"].workers[0].params)
        for run in range(args.runs + 2):  # the first two warm up
            for name, team in teams.items():
                took = team.epoch(run)
                if run > 1:
                    seconds.setdefault(name, []).append(took)
    ratios = [a / b for a, b in zip(seconds["stacked"], seconds["apart"], strict=True)]
    steps = models * args.minibatches
    apart, stacked = (1e6 * statistics.median(seconds[name]) / steps for name in ("apart", "stacked"))
    one = 1e6 * statistics.median(seconds["one"]) / args.minibatches
    print(f"{network:16s} {size:8,d} {minibatch_size:9d} {models:4d} {one:9.0f} {apart:9.0f} {stacked:9.0f}   "
          f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--networks", default="39-64x2-100,39-128x3-100", help="features-unitsxlayers-pdfs, ...; 5 frames to either side")
    parser.add_argument("--models", default="4,8,32", help="V, workers in the process")
    parser.add_argument("--minibatch-sizes", default="32,256")
    parser.add_argument("--strategy", default="ma")
    parser.add_argument("--momentum", type=float, default=0.5)
    parser.add_argument("--minibatches", type=int, default=20, help="of each worker in an epoch")
    parser.add_argument("--runs", type=int, default=7, help="by turns, so that other loads on the machine meet all alike")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.set_grad_enabled(False)
    name = torch.cuda.get_device_name(args.device) if args.device.startswith("cuda") else f"{cpu().name}, {args.threads} threads"
    print(f"{name}, torch {torch.__version__}; {args.strategy}, momentum {args.momentum:g}, {args.minibatches} minibatches a worker, "
          f"{args.runs} runs")
    print("network           weights minibatch    V  us a step of a worker:      stacked over")
    print("                                           one     apart   stacked   apart (range)")
    for network, size, models in itertools.product(args.networks.split(","), map(int, args.minibatch_sizes.split(",")),
                                                   map(int, args.models.split(","))):
        measure(network, models, size, args)


if __name__ == "__main__":
    main()
