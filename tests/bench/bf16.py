"""Training rates in float32 and in bfloat16 on a CPU, by turns in one run: DNNs, RBMs and other networks, SGD and NG-SGD.

    tests/bench/run.sh bf16                                          # one core: 440-512x4-712, 440-2048x6-712, an RBM, a CNN
    tests/bench/run.sh bf16 --sizes 440-512x4-712:256 --models rbm --runs 20

A size is inputs-unitsxlayers-pdfs:minibatch, a model one of rbm (512-512, minibatch 256, behind one frozen layer) or of train_step's.
Measured are worker steps with their loading from a frame store. The GEMM rate is torch.mm of 2048^3 in the same arithmetic. Each run has
every contender once; the ratios are of one run, and medians, with the spread, are printed. One thread's times are its CPU seconds, to which
other work on the machine adds no more than it takes of the caches. Where the CPU does not multiply bfloat16, that is said, and nothing is
measured.
"""

from __future__ import annotations

import argparse
import itertools
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from machine import machine, possible
from train_step import MODELS, RATE, random_store

from pykaldist.frames.sampler import Partition, Sampler
from pykaldist.frames.sequences import SequenceSampler
from pykaldist.frames.store import FrameStore
from pykaldist.nnet.arithmetic import arithmetic
from pykaldist.nnet.components import Affine, Sigmoid
from pykaldist.nnet.dnn import DnnOptions
from pykaldist.nnet.kinds import default_splice, init_nnet, make_nnet
from pykaldist.nnet.learner import Supervised
from pykaldist.nnet.lstm import RecurrentOptions
from pykaldist.nnet.model import Model
from pykaldist.nnet.objective import CrossEntropy
from pykaldist.nnet.rbm import ContrastiveDivergence, Rbm
from pykaldist.optim.cd import Cd, CdOptions
from pykaldist.optim.optimizer import Optimizer
from pykaldist.optim.registry import OPTIMIZERS, make_optimizer
from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.fabric.worker import Worker
from pykaldist.parallel.strategies.local import Local

DTYPES = ("float32", "bf16")
CPU = torch.device("cpu")
PDFS = 712


def seconds(work: Callable[[], None]) -> float:
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    before = clock()
    work()
    return clock() - before


def epochs(optimizer: Optimizer, sampler: Sampler) -> Callable[[], None]:
    worker, host = Worker(optimizer, sampler), Host()

    def work() -> None:
        worker.begin_epoch(worker.epoch + 1, RATE)
        host.run([Local().epoch(worker, host.fabrics[0])])

    return work


def frame_sampler(store: FrameStore, minibatch: int, splice: list[int]) -> Sampler:
    dim = store.manifest.dim * len(splice)
    return Sampler(store, Partition(store), 0, minibatch, splice, torch.zeros(dim), torch.ones(dim), 0, CPU)


def rbm_work(folder: Path, dtype: str, frames: int) -> Callable[[], None]:
    kind, compute = arithmetic(dtype, CPU)
    below = Model([Affine(512, 512), Sigmoid(512)], CPU, kind, compute)
    below.params.normal_(0.0, 0.1, generator=torch.Generator().manual_seed(1))
    rbm = Rbm("bern", 512, 512, CPU, kind, compute)
    rbm.init(0.1, -2.0, 4.0, torch.Generator().manual_seed(0))
    return epochs(Cd(ContrastiveDivergence(rbm, below), CdOptions()), frame_sampler(random_store(folder, frames, 512, 1), 256, [0]))


def network_work(folder: Path, dtype: str, frames: int, options: object, dim: int, minibatch: int, optimizer: str) -> Callable[[], None]:
    splice = list(range(-5, 6)) if isinstance(options, DnnOptions) else default_splice(options)
    recurrent = isinstance(options, RecurrentOptions)
    store = random_store(folder, frames, dim, PDFS, 256 if recurrent else 1024)
    if recurrent:
        width = dim * len(splice)
        sampler: Sampler = SequenceSampler(store, Partition(store, level="utterance"), 0, options, splice, torch.zeros(width),
                                           torch.ones(width), 0, CPU)
    else:
        sampler = frame_sampler(store, minibatch, splice)
    model = make_nnet(options, dim * len(splice), PDFS, len(splice), CPU, *arithmetic(dtype, CPU))
    init_nnet(model, options, torch.Generator().manual_seed(0))
    return epochs(make_optimizer(optimizer, Supervised(model, CrossEntropy()), OPTIMIZERS[optimizer][0]()), sampler)


def contenders(folder: Path, what: str, frames: int, optimizers: list[str]) -> dict[tuple[str, str], Callable[[], None]]:
    """The work of (optimiser, dtype) on a size or model."""
    if what == "rbm":
        return {("cd", dtype): rbm_work(folder / dtype, dtype, frames) for dtype in DTYPES}
    if what in MODELS:
        options, dim, minibatch = MODELS[what], 40, 256
    else:
        match = re.fullmatch(r"(\d+)-(\d+)x(\d+)-712:(\d+)", what)
        if not match or int(match[1]) % 11:
            sys.exit(f"{what}: expected something like 440-512x4-712:256, or a model: rbm, {', '.join(MODELS)}")
        inputs, units, layers, minibatch = map(int, match.groups())
        options, dim = DnnOptions(hid_layers=layers, hid_dim=units), inputs // 11
    return {(optimizer, dtype): network_work(folder / f"{optimizer}-{dtype}", dtype, frames, options, dim, minibatch, optimizer)
            for optimizer, dtype in itertools.product(optimizers, DTYPES)}


def spread(values: list[float], digits: int) -> str:
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def measure(what: str, frames: int, runs: int, optimizers: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        work = contenders(Path(folder), what, frames, optimizers)
        took: dict[tuple[str, str], list[float]] = {one: [] for one in work}
        for run in range(runs + 1):  # the first warms up
            for one, own in work.items():
                time = seconds(own)
                if run:
                    took[one].append(time)
    for optimizer in dict.fromkeys(optimizer for optimizer, _ in work):
        plain, narrow = took[optimizer, "float32"], took[optimizer, "bf16"]
        row = f"{what:20s} {optimizer:6s} {frames / statistics.median(plain):9.0f} {frames / statistics.median(narrow):9.0f} frames/s"
        row += f"   bf16 over float32: {spread([a / b for a, b in zip(plain, narrow, strict=True)], 2)}"
        if optimizer == "ngsgd" and ("sgd", "bf16") in took:
            row += f"   bf16 step over SGD's: {spread([b / a for a, b in zip(took['sgd', 'bf16'], narrow, strict=True)], 3)}"
        print(row, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--sizes", default="440-512x4-712:256,440-512x4-712:1024,440-2048x6-712:256")
    parser.add_argument("--models", default="rbm,cnn", help=f"of rbm, {', '.join(MODELS)}")
    parser.add_argument("--optimizers", default="sgd,ngsgd")
    parser.add_argument("--frames", type=int, default=4096, help="frames a run")
    parser.add_argument("--runs", type=int, default=10)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.set_grad_enabled(False)
    print(machine())
    if possible("bf16", lambda: arithmetic("bf16", CPU)) is None:
        return
    for dtype in (torch.float32, torch.bfloat16):
        a, b, c = (torch.randn(2048, 2048).to(dtype) for _ in range(3))
        best = min(seconds(lambda a=a, b=b, c=c: torch.mm(a, b, out=c)) for _ in range(6))
        print(f"GEMM, {dtype}: {2 * 2048**3 / best / 1e9:.0f} GFLOP/s")
    for what in [*filter(None, args.sizes.split(",")), *filter(None, args.models.split(","))]:
        measure(what, args.frames, args.runs, args.optimizers.split(","))


if __name__ == "__main__":
    main()
