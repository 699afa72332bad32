"""DNN training rate beside the machine's GEMM rate and a plain PyTorch loop, in one run.

    tests/bench/run.sh train_step [--threads 1] [--size 440-512x4-712] [--minibatch-size 256] [--runs 5]

Work: 6 flops a weight and frame (forward, both products of backward), 4 in the first layer, whose inputs need no derivative. `pykaldist` is
worker steps with their loading (shuffle, gather, splice, normalise from a frame store); the peer gets its minibatches ready-made.
The GEMM rate is torch.mm of 2048^3. Runs alternate; medians, with the spread, are printed.
"""

from __future__ import annotations

import argparse
import itertools
import re
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from pykaldist.frames.sampler import Partition, Sampler
from pykaldist.frames.store import FrameStore, pack
from pykaldist.nnet.dnn import DnnOptions, make_dnn
from pykaldist.nnet.init import init_dnn
from pykaldist.nnet.learner import Supervised
from pykaldist.nnet.objective import CrossEntropy
from pykaldist.optim.sgd import Sgd, SgdOptions
from pykaldist.parallel.fabrics.single import Single
from pykaldist.parallel.strategies.local import Local
from pykaldist.parallel.worker import Worker


def seconds(work: Callable[[], None]) -> float:
    before = time.perf_counter()
    work()
    return time.perf_counter() - before


def random_store(path: Path, num_utts: int, length: int, dim: int, num_pdfs: int) -> FrameStore:
    rng = np.random.default_rng(0)
    utts = {f"utt{i}": (rng.normal(size=(length, dim)).astype(np.float32), rng.integers(0, num_pdfs, length)) for i in range(num_utts)}
    pack(utts, lambda u: utts[u][0], lambda u: utts[u][1], num_pdfs, path)
    return FrameStore(path)


def plain_loop(sizes: list[int], minibatch: int, steps: int) -> Callable[[], None]:
    """torch.nn, autograd and torch.optim, as a tutorial would write it."""
    layers: list[torch.nn.Module] = []
    for i in range(len(sizes) - 1):
        layers += [torch.nn.Linear(sizes[i], sizes[i + 1]), torch.nn.Sigmoid()]
    model = torch.nn.Sequential(*layers[:-1])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.5)
    batches = [(torch.randn(minibatch, sizes[0]), torch.randint(0, sizes[-1], (minibatch,))) for _ in range(8)]

    def work() -> None:
        with torch.enable_grad():
            for i in range(steps):
                inputs, targets = batches[i % len(batches)]
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(inputs), targets, reduction="sum").backward()
                optimizer.step()

    return work


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--size", default="440-512x4-712", help="inputs-unitsxlayers-pdfs; inputs a multiple of 11")
    parser.add_argument("--minibatch-size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=60, help="minibatches a run")
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    match = re.fullmatch(r"(\d+)-(\d+)x(\d+)-(\d+)", args.size)
    if not match:
        parser.error(f"--size {args.size}: expected something like 440-512x4-712")
    inputs, units, layers, pdfs = map(int, match.groups())
    sizes = [inputs] + [units] * layers + [pdfs]
    torch.set_num_threads(args.threads)
    torch.set_grad_enabled(False)

    options = DnnOptions(hid_layers=layers, hid_dim=units)
    model = make_dnn(options, inputs, pdfs)
    init_dnn(model, options, torch.Generator().manual_seed(0))
    frames = args.steps * args.minibatch_size
    weights = [a * b for a, b in itertools.pairwise(sizes)]
    flops = frames * (6 * sum(weights) - 2 * weights[0])
    matrices = [torch.randn(2048, 2048) for _ in range(3)]

    with tempfile.TemporaryDirectory() as folder:
        store = random_store(Path(folder) / "store", args.steps, args.minibatch_size, inputs // 11, pdfs)
        zeros, ones = torch.zeros(inputs), torch.ones(inputs)
        sampler = Sampler(store, Partition(store), 0, args.minibatch_size, list(range(-5, 6)), zeros, ones, 0, torch.device("cpu"))
        worker = Worker(Sgd(Supervised(model, CrossEntropy()), SgdOptions(momentum=0.5)), sampler)

        def ours() -> None:
            worker.begin_epoch(worker.epoch + 1, 1e-5)
            Single().run(Local().epoch(worker, Single()))

        peer = plain_loop(sizes, args.minibatch_size, args.steps)
        results: dict[str, list[float]] = {"GEMM": [], "plain PyTorch": [], "pykaldist": []}
        for run in range(args.runs + 1):  # the first warms up
            gemm = 2 * 2048**3 / min(seconds(lambda: torch.mm(matrices[0], matrices[1], out=matrices[2])) for _ in range(3))
            rates = {"GEMM": gemm, "plain PyTorch": flops / seconds(peer), "pykaldist": flops / seconds(ours)}
            for name, rate in rates.items():
                if run:
                    results[name].append(rate)

    print(f"{args.size}, minibatch {args.minibatch_size}, {args.threads} threads, {args.runs} runs, torch {torch.__version__}")
    print(f"{'':15s} {'GFLOP/s':>8s} {'frames/s':>9s} {'share of GEMM: median (min to max)':>36s}")
    for name, rates in results.items():
        shares = [100 * r / g for r, g in zip(rates, results["GEMM"], strict=True)]
        rate = statistics.median(rates)
        per_second = "" if name == "GEMM" else f"{rate * frames / flops:9.0f}"
        print(f"{name:15s} {rate / 1e9:8.1f} {per_second:>9s} {statistics.median(shares):18.1f} % ({min(shares):.1f} to {max(shares):.1f})")


if __name__ == "__main__":
    main()
