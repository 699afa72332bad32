"""Training rate of a chain TDNN-F on one core or GPU, the shares of its parts, and the machine's GEMM rate, in one run.

    tests/bench/run.sh chain_step $PYKALDIST_SHARED/golden               # the AN4 network of Kaldi, float32 and bf16
    tests/bench/run.sh chain_step $PYKALDIST_SHARED/golden --dtypes float32 --sequences 64 --steps 30
    tests/bench/run.sh chain_step $PYKALDIST_SHARED/golden --device cuda --dtypes float32,tf32,bf16

The network is that of chain_an4/final.mdl, the denominator of its tree and the phones of chain/phones.txt.gz, the numerators those of two
utterances; features are random. A step is forward, objective, backward and the update of the optimiser nnet3, without loading. Rates are
input frames, context not counted, a second of CPU time: medians of the steps, between their quartiles. Shares are of the time of all steps.
On a GPU seconds are the clock's; the host waits for the device after each part, so that the shares of parts are right, and not for a second
rate, which is of steps without waiting.
The GEMM rate is torch.mm of 2048^3; the work is 6 flops a weight and row that it is applied to (4 where no derivatives go further down),
and what the natural gradient takes.
"""

from __future__ import annotations

import argparse
import gzip
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pykaldist.frames.lattices import Lattices
from pykaldist.frames.sampler import Minibatch
from pykaldist.hmm.chain.den_graph import denominator_graph, normalization_fst
from pykaldist.hmm.chain.phone_lm import PhoneLmOptions, estimate_phone_lm
from pykaldist.hmm.chain.supervision import Normalizer, SupervisionOptions, frame_range, phone_supervision
from pykaldist.hmm.gmm.model_files import read_transition_model, read_tree
from pykaldist.nnet import chain_objective as objective
from pykaldist.nnet.arithmetic import arithmetic
from pykaldist.nnet.chain_denominator import Denominator, denominator_on
from pykaldist.nnet.components import GradientRule, outer_product
from pykaldist.nnet.learner import Learner
from pykaldist.nnet.nnet3.model import Nnet3Model
from pykaldist.nnet.nnet3.network import Nnet3Network
from pykaldist.optim.nnet3 import Nnet3, Nnet3Options

CHUNK, SUBSAMPLING, RATE, XENT = 150, 3, 0.001, 0.1


class Clock:
    """Adds up seconds by the names of what they are spent on: of the CPU, or of the clock until a GPU is done.

    `parts` False: they are not told apart, so that the host need not wait for the GPU.
    """

    def __init__(self, device: torch.device, parts: bool = True) -> None:
        self.device, self.parts = device, parts
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def now(self) -> float:
        if self.device.type == "cpu":
            return time.process_time()
        torch.cuda.synchronize(self.device)
        return time.perf_counter()

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        before = self.now() if self.parts else 0.0
        yield
        self.seconds[name] += self.now() - before if self.parts else 0.0

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            with self.of(name):
                return function(*args, **kwargs)
        return call


class Chain(Learner):
    """The chain objective of one minibatch of ready-made features and numerators."""

    num_totals = 1

    def __init__(self, network: Nnet3Network, feats: Tensor, numerators: list[Lattices], denominator: Denominator, clock: Clock) -> None:
        self.model: Nnet3Network = network
        self.feats, self.numerators, self.denominator, self.clock = feats, numerators, denominator, clock

    def gradient(self, minibatch: Minibatch, grads: Tensor, beta: float, totals: Tensor, rule: GradientRule = outer_product) -> None:
        with self.clock.of("forward"):
            outputs = self.model.forward_chunks(self.feats, None, CHUNK // SUBSAMPLING, len(self.numerators), True,
                                                self.training_generator(minibatch))
        with self.clock.of("objective"):
            found = objective.chain_objective(outputs["output"], self.numerators, self.denominator, objective.ChainOptions(0.1))
        totals += found.objf
        with self.clock.of("backward"):
            self.model.backward_chunks({"output": found.derivative.neg_(), "output-xent": found.posterior.mul_(-XENT)}, grads, beta, rule)

    def score(self, minibatch: Minibatch, totals: Tensor) -> None:
        raise NotImplementedError

    score_priors = score

    def metrics(self, totals: list[float]) -> dict[str, float]:
        return {}


def graphs(golden: Path, sequences: int, device: torch.device) -> tuple[Denominator, list[Lattices]]:
    """The denominator, and numerators of chunks of the utterances that are long enough."""
    tree, model = read_tree(golden / "chain_an4/decode/tree"), read_transition_model(golden / "chain_an4/decode/0.trans_mdl")
    with gzip.open(golden / "chain/phones.txt.gz", "rt") as lines:
        lm = estimate_phone_lm([[int(phone) for phone in line.split()[1:]] for line in lines], PhoneLmOptions())
    den = denominator_graph(tree, model, lm)
    normalizer, found = Normalizer(normalization_fst(den)), []
    for line in (golden / "chain/phone_lengths.txt").read_text().splitlines():
        pairs = np.array(line.split(maxsplit=1)[1].replace(";", " ").split(), int).reshape(-1, 2)
        if pairs[:, 1].sum() > CHUNK:
            whole = phone_supervision(pairs[:, 0].tolist(), pairs[:, 1].tolist(), tree, model, SupervisionOptions())
            assert whole is not None
            chunk = normalizer.chunk(frame_range(whole, 0, CHUNK // SUBSAMPLING))
            assert chunk is not None
            found.append(objective.numerator(chunk, model.num_pdfs))
    return denominator_on(den, model.num_pdfs, 0.1, device), [found[n % len(found)] for n in range(sequences)]


def gemm_rate(dtype: torch.dtype, clock: Clock) -> float:
    """Flops a second of a product of 2048 x 2048 matrices, 8192 on a GPU."""
    side = 2048 if clock.device.type == "cpu" else 8192
    a, b = (torch.randn(side, side, device=clock.device).to(dtype) for _ in range(2))
    rates = []
    for _ in range(5):
        before = clock.now()
        torch.mm(a, b)
        rates.append(2 * side**3 / (clock.now() - before))
    return statistics.median(rates)


def flops(network: Nnet3Network) -> float:
    """The flops of the matrix products of a step, of the last minibatch."""
    total = 0.0
    for m, rows, deeper in network.products():
        total += rows * m.input_dim * m.output_dim * (6 if deeper else 4)
        if m.ranks is not None:
            total += sum(rows * dim * rank * (4 + 2 / m.update_period)
                         for dim, rank in zip((m.input_dim, m.output_dim), m.ranks, strict=True))
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("golden", type=Path)
    parser.add_argument("--dtypes", default="float32,bf16")
    parser.add_argument("--sequences", type=int, default=64)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    torch.set_num_threads(1)
    device = torch.device(args.device)
    denominator, numerators = graphs(args.golden, args.sequences, device)
    nnet = Nnet3Model.read(args.golden / "chain_an4/final.mdl").nnet
    frames, of = args.sequences * CHUNK, "of CPU time" if device.type == "cpu" else f"on {torch.cuda.get_device_name(device)}"
    print(f"{args.sequences} sequences of {CHUNK} frames, {len(denominator.prob)} arcs, load {os.getloadavg()[0]:.1f}")
    for name in args.dtypes.split(","):
        dtype, compute = arithmetic(name, device)
        if device.type == "cuda":
            seconds, _, network = steps(Clock(device, parts=False), denominator, numerators, nnet, dtype, compute, args)
            print(f"{name}: {frames * len(seconds) / sum(seconds):.0f} input frames a second {of}, without waiting for its parts")
        clock = Clock(device)
        seconds, parts, network = steps(clock, denominator, numerators, nnet, dtype, compute, args)
        quarter, middle, whole = len(seconds) // 4, statistics.median(seconds), sum(seconds)
        rate, work = gemm_rate(compute, clock), flops(network)
        print(f"{name}: {frames / middle:.0f} input frames a second {of} ({frames / seconds[-1 - quarter]:.0f} to "
              f"{frames / seconds[quarter]:.0f}), {work / middle / 1e9:.1f} Gflop/s, {100 * work / middle / rate:.0f} % of the GEMM rate "
              f"({rate / 1e9:.0f} Gflop/s)")
        print("  " + ", ".join(f"{part} {100 * spent / whole:.0f} %" for part, spent in parts.items()))


def steps(clock: Clock, denominator: Denominator, numerators: list[Lattices], nnet: Any, dtype: torch.dtype, compute: torch.dtype,
          args: argparse.Namespace) -> tuple[list[float], dict[str, float], Nnet3Network]:
    """Seconds of steps, sorted; those of their parts, all steps together; and the network."""
    network = Nnet3Network(nnet, clock.device, dtype, compute)
    context = network.left_context + network.right_context
    feats = torch.randn((CHUNK + context) * args.sequences, network.input_dim, generator=torch.Generator().manual_seed(0)) * 10
    feats = feats.to(clock.device)
    learner = Chain(network, feats, numerators, denominator, clock)
    optimizer, totals = Nnet3(learner, Nnet3Options()), torch.zeros(1, dtype=torch.float64, device=clock.device)
    restore = objective.begin_numerators
    begin = clock.timed("numerator", restore)
    objective.begin_numerators = lambda *given: clock.timed("numerator", begin(*given))
    learner.denominator = Timed(denominator, clock)
    optimizer._precondition = clock.timed("natural gradient", optimizer._precondition)  # type: ignore[method-assign]  # its time is taken
    optimizer._after_step = clock.timed("natural gradient", optimizer._after_step)  # type: ignore[method-assign]  # its time is taken, too
    optimizer._update = clock.timed("update", optimizer._update)  # type: ignore[method-assign]  # its time is taken, too
    seconds, begun = [], 0.0
    for index in range(args.steps + 12):
        if index == 12:  # Fisher matrices are updated in each of the first minibatches
            clock.seconds.clear()
            begun = clock.now()
        before = clock.now() if clock.parts else 0.0
        optimizer.local_step(Minibatch(feats, torch.zeros(0), index, False, seed=index), RATE, totals)
        if clock.parts:
            seconds.append(clock.now() - before)
    objective.begin_numerators = restore
    return sorted(seconds[12:]) if clock.parts else [clock.now() - begun] + [0.0] * (args.steps - 1), dict(clock.seconds), network


class Timed(Denominator):
    """A denominator whose time is taken."""

    def __init__(self, denominator: Denominator, clock: Clock) -> None:
        self.__dict__.update(denominator.__dict__)
        self.forward_backward = clock.timed("denominator", denominator.forward_backward)  # type: ignore[method-assign]  # this one's time is taken


if __name__ == "__main__":
    main()
