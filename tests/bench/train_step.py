"""DNN training rate, SGD and NG-SGD, beside the machine's GEMM rate and a plain PyTorch loop, in one run.

    tests/bench/run.sh train_step                                    # one core, 440-512x4-712, minibatch 256
    tests/bench/run.sh train_step --sizes 440-512x4-712,440-1024x6-4000,440-2048x6-8806 --minibatch-sizes 256,1024 --plot rates.png
    tests/bench/run.sh train_step --device cuda --dtypes float32,tf32,bf16 --sizes 440-2048x6-8806 --minibatch-sizes 1024 \\
        --frames 10800000 --runs 1                                   # a tenth of an epoch of 300 hours, as one run

    tests/bench/run.sh train_step --models cnn,lstm,blstm            # one core; the peer of a recurrent network is torch.nn.LSTM

Work: 6 flops a weight and frame (forward, both products of backward), 4 in the first layer, whose inputs need no derivative; NG-SGD's own
is not counted. `sgd` and `ngsgd` are worker steps with their loading (shuffle, gather, splice, normalise from a frame store); the peer,
torch.nn, autograd and torch.optim as a tutorial has them, gets its minibatches ready-made. The GEMM rate is torch.mm of 2048^3 (8192^3 on a
GPU) in the same arithmetic. Runs alternate; medians, with the spread, are printed.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from pykaldist.frames.sampler import Partition, Sampler
from pykaldist.frames.sequences import SequenceSampler
from pykaldist.frames.store import FrameStore, pack
from pykaldist.nnet.arithmetic import DTYPES, arithmetic
from pykaldist.nnet.cnn import CnnOptions
from pykaldist.nnet.dnn import DnnOptions, make_dnn
from pykaldist.nnet.init import init_dnn
from pykaldist.nnet.kinds import default_splice, init_nnet, make_nnet
from pykaldist.nnet.learner import Supervised
from pykaldist.nnet.lstm import BlstmOptions, LstmOptions, RecurrentOptions
from pykaldist.nnet.objective import CrossEntropy
from pykaldist.optim.registry import OPTIMIZERS, make_optimizer
from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.fabric.worker import Worker
from pykaldist.parallel.strategies.local import Local

RATE = 1e-5
EPOCH_300H = 108_000_000  # frames


def seconds(work: Callable[[], None], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    before = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - before


def random_store(path: Path, frames: int, dim: int, num_pdfs: int, length: int = 1024) -> FrameStore:
    rng = np.random.default_rng(0)
    utts = [f"utt{i}" for i in range(-(-frames // length))]
    pack(utts, lambda _: rng.standard_normal((length, dim), np.float32), lambda _: rng.integers(0, num_pdfs, length), num_pdfs, path,
         "float16")
    return FrameStore(path)


def plain_loop(sizes: list[int], minibatch: int, steps: int, device: torch.device, dtype: str) -> Callable[[], None]:
    """torch.nn, autograd and torch.optim, as a tutorial would write it."""
    layers: list[torch.nn.Module] = []
    for i in range(len(sizes) - 1):
        layers += [torch.nn.Linear(sizes[i], sizes[i + 1]), torch.nn.Sigmoid()]
    model = torch.nn.Sequential(*layers[:-1]).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.5)
    batches = [(torch.randn(minibatch, sizes[0]).to(device), torch.randint(0, sizes[-1], (minibatch,)).to(device)) for _ in range(8)]
    cast = torch.autocast(device.type, torch.bfloat16) if dtype == "bf16" else contextlib.nullcontext()

    def work() -> None:
        with torch.enable_grad():
            for i in range(steps):
                inputs, targets = batches[i % len(batches)]
                optimizer.zero_grad()
                with cast:
                    loss = torch.nn.functional.cross_entropy(model(inputs), targets, reduction="sum")
                loss.backward()
                optimizer.step()

    return work


def measure(size: str, minibatch: int, dtype: str, device: torch.device, frames: int, runs: int, optimizers: list[str],
            peer: bool) -> dict[str, list[float]]:
    """GFLOP/s of each contender in each run, and of the GEMM; printed as a table."""
    match = re.fullmatch(r"(\d+)-(\d+)x(\d+)-(\d+)", size)
    if not match:
        sys.exit(f"--sizes {size}: expected something like 440-512x4-712")
    inputs, units, layers, pdfs = map(int, match.groups())
    sizes = [inputs] + [units] * layers + [pdfs]
    weights = [a * b for a, b in itertools.pairwise(sizes)]
    flops_a_frame = 6 * sum(weights) - 2 * weights[0]
    kind, compute = arithmetic(dtype, device)
    side = 8192 if device.type == "cuda" else 2048
    matrices = [torch.randn(side, side, device=device, dtype=compute) for _ in range(3)]

    with tempfile.TemporaryDirectory() as folder:
        store = random_store(Path(folder) / "store", frames, inputs // 11, pdfs)
        zeros, ones = torch.zeros(inputs), torch.ones(inputs)
        sampler = Sampler(store, Partition(store), 0, minibatch, list(range(-5, 6)), zeros, ones, 0, device)
        work: dict[str, Callable[[], None]] = {}
        host = Host()
        if peer:
            work["plain PyTorch"] = plain_loop(sizes, minibatch, len(store) // minibatch, device, dtype)
        for name in optimizers:
            options = DnnOptions(hid_layers=layers, hid_dim=units)
            model = make_dnn(options, inputs, pdfs, device, kind, compute)
            init_dnn(model, options, torch.Generator().manual_seed(0))
            worker = Worker(make_optimizer(name, Supervised(model, CrossEntropy()), OPTIMIZERS[name][0]()), sampler)

            def epoch(worker: Worker = worker) -> None:
                worker.begin_epoch(worker.epoch + 1, RATE)
                host.run([Local().epoch(worker, host.fabrics[0])])

            work[name] = epoch
        rates: dict[str, list[float]] = {"GEMM": [], **{name: [] for name in work}}
        for run in range(runs + 1):  # the first warms up
            product = [seconds(lambda: torch.mm(matrices[0], matrices[1], out=matrices[2]), device) for _ in range(5)]
            took = {name: seconds(one, device) for name, one in work.items()}
            if run:
                rates["GEMM"].append(2 * side**3 / min(product) / 1e9)
                for name, t in took.items():
                    rates[name].append(flops_a_frame * len(store) / t / 1e9)

    print(f"\n{size}, minibatch {minibatch}, {dtype}, {len(store):,} frames a run, {runs} runs")
    heads = f"{'share of GEMM: median (min to max)':>36s} {'step time over SGD':>19s}"
    print(f"{'':15s} {'GFLOP/s':>9s} {'frames/s':>10s} {'s for 300 h':>11s} {heads}")
    for name, own in rates.items():
        shares = [100 * r / g for r, g in zip(own, rates["GEMM"], strict=True)]
        rate = statistics.median(own)
        row = f"{name:15s} {rate:9.1f}"
        if name != "GEMM":
            per_second = rate * 1e9 / flops_a_frame
            row += f" {per_second:10.0f} {EPOCH_300H / per_second:11.0f}"
            row += f" {statistics.median(shares):18.1f} % ({min(shares):.1f} to {max(shares):.1f})"
            if "sgd" in rates:
                ratios = [s / r for s, r in zip(rates["sgd"], own, strict=True)]
                row += f"  {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
        print(row, flush=True)
    return rates


MODELS = {
    "cnn": CnnOptions(channels=1),
    "lstm": LstmOptions(num_streams=16),
    "lstm-64": LstmOptions(num_streams=64),
    "blstm": BlstmOptions(hid_dim=512, num_streams=16),
}


def lstm_loop(options: RecurrentOptions, sampler: SequenceSampler, num_pdfs: int) -> Callable[[], None]:
    """torch.nn.LSTM, autograd and torch.optim, as a tutorial would write it, on the very same chunks, ready-made and padded."""
    dim, directions = sampler.gather._shift.numel(), options.directions
    lstm = torch.nn.LSTM(dim, options.hid_dim // directions, options.hid_layers, bidirectional=directions == 2)
    output = torch.nn.Linear(options.hid_dim, num_pdfs)
    optimizer = torch.optim.SGD([*lstm.parameters(), *output.parameters()], lr=RATE)
    batches = []
    for minibatch in itertools.islice(sampler.epoch(0), 8):
        sizes = torch.tensor(minibatch.sequences.sizes)
        inside = torch.arange(int(sizes[0]))[None, :] < sizes[:, None]  # steps, sequences
        inputs, targets = torch.zeros(*inside.shape, dim), torch.full(inside.shape, -100)
        inputs[inside] = minibatch.inputs
        targets[inside] = minibatch.targets.long() if minibatch.weights is None else \
            torch.where(minibatch.weights > 0, minibatch.targets.long(), -100)
        batches.append((inputs, targets.flatten()))
    steps = sampler.minibatches

    def work() -> None:
        state = None
        with torch.enable_grad():
            for i in range(steps):
                inputs, targets = batches[i % len(batches)]
                optimizer.zero_grad()
                hidden, state = lstm(inputs, state if directions == 1 else None)
                state = tuple(part.detach() for part in state)
                loss = torch.nn.functional.cross_entropy(output(hidden).flatten(0, 1), targets, reduction="sum")
                loss.backward()
                optimizer.step()

    return work


def measure_model(name: str, device: torch.device, frames: int, runs: int, optimizers: list[str], peer: bool) -> None:
    """Frames a second of a model with each optimiser, loading included, and of torch.nn.LSTM; printed as a table."""
    options, dim, pdfs = MODELS[name], 40, 712
    splice = default_splice(options)
    with tempfile.TemporaryDirectory() as folder:
        store = random_store(Path(folder) / "store", frames, dim, pdfs, 256)
        how = (splice, torch.zeros(dim * len(splice)), torch.ones(dim * len(splice)), 0, device)
        recurrent = isinstance(options, RecurrentOptions)
        partition = Partition(store, level="utterance" if recurrent else "frame")
        sampler = SequenceSampler(store, partition, 0, options, *how) if recurrent else Sampler(store, partition, 0, 256, *how)
        work: dict[str, Callable[[], None]] = {}
        host = Host()
        if recurrent and peer:
            work["torch.nn.LSTM"] = lstm_loop(options, sampler, pdfs)
        for optimizer in optimizers:
            model = make_nnet(options, dim * len(splice), pdfs, len(splice), device)
            init_nnet(model, options, torch.Generator().manual_seed(0))
            worker = Worker(make_optimizer(optimizer, Supervised(model, CrossEntropy()), OPTIMIZERS[optimizer][0]()), sampler)

            def epoch(worker: Worker = worker) -> None:
                worker.begin_epoch(worker.epoch + 1, RATE)
                host.run([Local().epoch(worker, host.fabrics[0])])

            work[optimizer] = epoch
        rates: dict[str, list[float]] = {one: [] for one in work}
        for run in range(runs + 1):  # the first warms up
            for one, own in work.items():
                took = seconds(own, device)
                if run:
                    rates[one].append(len(store) / took)
    print(f"\n{name}: {options.described()}, {len(model.params):,} parameters"
          + f", {options.cut()}" * recurrent + f"; {len(store):,} frames a run, {runs} runs")
    for one, own in rates.items():
        shares = [100 * a / b for a, b in zip(own, rates.get("torch.nn.LSTM", own), strict=True)]
        print(f"{one:15s} {statistics.median(own):9.0f} frames/s ({min(own):.0f} to {max(own):.0f})"
              + (f", {statistics.median(shares):.0f} % of torch.nn.LSTM ({min(shares):.0f} to {max(shares):.0f})"
                 if recurrent and peer else ""),
              flush=True)


def plot(path: Path, results: dict[str, dict[str, list[float]]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(2.5 + 1.6 * len(results), 4.5))
    contenders = [name for name in next(iter(results.values())) if name != "GEMM"]
    width = 0.8 / len(contenders)
    for i, name in enumerate(contenders):
        shares = [[100 * r / g for r, g in zip(rates[name], rates["GEMM"], strict=True)] for rates in results.values()]
        middle = [statistics.median(s) for s in shares]
        spread = [[m - min(s) for m, s in zip(middle, shares, strict=True)], [max(s) - m for m, s in zip(middle, shares, strict=True)]]
        places = [x + (i - (len(contenders) - 1) / 2) * width for x in range(len(results))]
        axes.bar(places, middle, width, yerr=spread, capsize=3, label=name)
    axes.set_xticks(range(len(results)), list(results), fontsize=8)
    axes.set_ylabel("share of the GEMM rate, %")
    axes.set_ylim(0, 105)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    print(f"\nplot in {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtypes", default="float32", help=f"of {', '.join(DTYPES)}")
    parser.add_argument("--models", default="", help=f"of {', '.join(MODELS)}, in place of a DNN of --sizes")
    parser.add_argument("--sizes", default="440-512x4-712", help="inputs-unitsxlayers-pdfs, ...; inputs a multiple of 11")
    parser.add_argument("--minibatch-sizes", default="256")
    parser.add_argument("--optimizers", default="sgd,ngsgd")
    parser.add_argument("--no-peer", action="store_true", help="leave out the plain PyTorch loop")
    parser.add_argument("--frames", type=int, default=4096, help="frames a run")
    parser.add_argument("--runs", type=int, default=40, help="short ones by turns, so that other loads on the machine meet all alike")
    parser.add_argument("--plot", type=Path, help="PNG to draw the table into")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.set_grad_enabled(False)
    device = torch.device(args.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{args.threads} threads"
    print(f"{name}, torch {torch.__version__}")
    if args.models:
        for model in args.models.split(","):
            measure_model(model, device, args.frames, args.runs, args.optimizers.split(","), not args.no_peer)
        return
    results = {}
    minibatch_sizes = [int(size) for size in args.minibatch_sizes.split(",")]
    for size, minibatch, dtype in itertools.product(args.sizes.split(","), minibatch_sizes, args.dtypes.split(",")):
        results[f"{size}\n{minibatch}, {dtype}"] = measure(size, minibatch, dtype, device, args.frames, args.runs,
                                                           args.optimizers.split(","), not args.no_peer)
    if args.plot:
        plot(args.plot, results)


if __name__ == "__main__":
    main()
