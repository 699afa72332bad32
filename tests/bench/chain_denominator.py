"""Time of the chain objective's denominator for a minibatch, forward and backward, on one core and in tensors.

    tests/bench/run.sh chain_denominator exp/chain/den.fst 112 64 50     # den.fst, pdfs, sequences, output frames of each
"""

from __future__ import annotations

import statistics
import sys
import time

import torch

from pykaldist.io.fst import Fst
from pykaldist.nnet.chain_denominator import Denominator, TensorDenominator


def main() -> None:
    den, (pdfs, sequences, frames) = Fst.read(sys.argv[1]), map(int, sys.argv[2:5])
    torch.set_num_threads(1)
    outputs = torch.randn(sequences * frames, pdfs, generator=torch.Generator().manual_seed(0))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    print(f"{den.num_states} states, {den.num_arcs} arcs, {sequences} sequences of {frames} output frames")
    for name, engine, values in (("kernel", Denominator(den, pdfs, 0.1), outputs),
                                 (f"tensors on {device}", TensorDenominator(den, pdfs, 0.1, device), outputs.to(device))):
        times = []
        for _ in range(11):
            begin = time.process_time(), time.perf_counter()
            engine.forward_backward(values, sequences)[0].sum().item()
            times.append((time.process_time() - begin[0], time.perf_counter() - begin[1]))
        cpu, wall = (sorted(column)[:-1] for column in zip(*times, strict=True))  # the first call loads or compiles
        print(f"{name}: {1000 * statistics.median(cpu):.1f} ms of CPU time ({1000 * cpu[0]:.1f} to {1000 * cpu[-1]:.1f}), "
              f"{1000 * statistics.median(wall):.1f} ms of wall-clock time")


main()
