"""RBM training rate beside the machine's GEMM rate, in one run.

    tests/bench/run.sh train_rbm [--threads 1] [--size 512-512] [--minibatch-size 256] [--runs 5]

Work: 10 flops a weight and frame (CD-1: two upward passes, one downward, both sides of the gradient). Measured are worker steps with their
loading from a frame store, sampling, momentum, L2 penalty and the guard included, for Gaussian and for Bernoulli visible units; `stacked`
is a Bernoulli RBM behind one frozen layer, as the second one of a stack. The GEMM rate is torch.mm of 2048^3. Runs alternate; medians, with
the spread, are printed.
"""

from __future__ import annotations

import argparse
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
from pykaldist.nnet.components import Affine, Sigmoid
from pykaldist.nnet.model import Model
from pykaldist.nnet.rbm import ContrastiveDivergence, Rbm
from pykaldist.optim.cd import Cd, CdOptions
from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.fabric.worker import Worker
from pykaldist.parallel.strategies.local import Local


def seconds(work: Callable[[], None]) -> float:
    before = time.perf_counter()
    work()
    return time.perf_counter() - before


def random_store(path: Path, num_utts: int, length: int, dim: int) -> FrameStore:
    rng = np.random.default_rng(0)
    utts = {f"utt{i}": rng.random((length, dim), dtype=np.float32) for i in range(num_utts)}
    pack(utts, utts.__getitem__, lambda u: np.zeros(length, np.int32), 1, path)
    return FrameStore(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--size", default="512-512", help="visible-hidden")
    parser.add_argument("--minibatch-size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=60, help="minibatches a run")
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    match = re.fullmatch(r"(\d+)-(\d+)", args.size)
    if not match:
        parser.error(f"--size {args.size}: expected something like 512-512")
    visible, hidden = map(int, match.groups())
    torch.set_num_threads(args.threads)
    torch.set_grad_enabled(False)
    matrices = [torch.randn(2048, 2048) for _ in range(3)]
    frames = args.steps * args.minibatch_size

    with tempfile.TemporaryDirectory() as folder:
        store = random_store(Path(folder) / "store", args.steps, args.minibatch_size, visible)

        def trainer(units: str, below: Model | None) -> Callable[[], None]:
            rbm = Rbm(units, visible, hidden)
            rbm.init(0.1, -2.0, 4.0, torch.Generator().manual_seed(0))
            sampler = Sampler(store, Partition(store), 0, args.minibatch_size, [0], torch.zeros(visible), torch.ones(visible), 0,
                              torch.device("cpu"))
            worker, host = Worker(Cd(ContrastiveDivergence(rbm, below), CdOptions()), sampler), Host()

            def work() -> None:
                worker.begin_epoch(worker.epoch + 1, 0.01)
                host.run([Local().epoch(worker, host.fabrics[0])])

            return work

        below = Model([Affine(visible, visible), Sigmoid(visible)])
        below.params.normal_(0.0, 0.1, generator=torch.Generator().manual_seed(1))
        weights = visible * hidden
        runs = {"gauss": (trainer("gauss", None), 10 * weights), "bern": (trainer("bern", None), 10 * weights),
                "bern, stacked": (trainer("bern", below), 10 * weights + 2 * visible * visible)}
        results: dict[str, list[float]] = {"GEMM": [], **{name: [] for name in runs}}
        for run in range(args.runs + 1):  # the first warms up
            gemm = 2 * 2048**3 / min(seconds(lambda: torch.mm(matrices[0], matrices[1], out=matrices[2])) for _ in range(3))
            rates = {"GEMM": gemm, **{name: frames * flops / seconds(work) for name, (work, flops) in runs.items()}}
            for name, rate in rates.items():
                if run:
                    results[name].append(rate)

    print(f"{args.size}, minibatch {args.minibatch_size}, {args.threads} threads, {args.runs} runs, torch {torch.__version__}")
    print(f"{'':15s} {'GFLOP/s':>8s} {'frames/s: median (min to max)':>32s} {'share of GEMM: median (min to max)':>36s}")
    for name, rates in results.items():
        shares = [100 * r / g for r, g in zip(rates, results["GEMM"], strict=True)]
        per_second = [] if name == "GEMM" else [rate / runs[name][1] for rate in rates]
        speed = f"{statistics.median(per_second):.0f} ({min(per_second):.0f} to {max(per_second):.0f})" if per_second else ""
        print(f"{name:15s} {statistics.median(rates) / 1e9:8.1f} {speed:>32s} {statistics.median(shares):18.1f} % ({min(shares):.1f} to "
              f"{max(shares):.1f})")


if __name__ == "__main__":
    main()
