"""fabric.average of a model between MPI ranks, beside a bare MPI Allreduce, in one run.

    tests/bench/run.sh average                                  # 100 MB, two ranks
    tests/bench/run.sh average --megabytes 5 --ranks 4 --runs 20

Every run makes each of these once, in turn, on the same buffer, after all ranks have met: `Allreduce`, bare, in place, of the whole
buffer; `and mean`, the same and the division that makes it a mean; `average`, what a strategy calls, coroutine, host and all, with equal
weights and with others. Medians over runs of the slowest rank's time; the overhead is the median of the runs' ratios to the bare Allreduce.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from ranks import on_ranks


def measure(values: int, runs: int, deterministic: bool) -> None:
    from mpi4py import MPI

    from pykaldist.parallel.engines.host import Host
    from pykaldist.parallel.fabric.interface import Fabric
    from pykaldist.parallel.fabric.mpi import Mpi

    world = MPI.COMM_WORLD
    host = Host(world.size, Mpi(), deterministic)
    buffer = torch.randn(values, generator=torch.Generator().manual_seed(world.rank))
    flat = buffer.numpy()

    def and_mean() -> None:
        world.Allreduce(MPI.IN_PLACE, flat)
        np.multiply(flat, 1.0 / world.size, out=flat)

    async def average(fabric: Fabric, weight: float) -> None:
        await fabric.average(buffer, weight)

    contenders: dict[str, Callable[[], object]] = {
        "Allreduce": lambda: world.Allreduce(MPI.IN_PLACE, flat), "and mean": and_mean,
        "average, equal weights": lambda: host.run([average(host.fabrics[0], 1.0)]),
        "average, other weights": lambda: host.run([average(host.fabrics[0], 1.0 + host.ranks[0])])}
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for run in range(runs + 2):  # the first two warm up
        for name, work in contenders.items():
            flat[:] = 1.0
            world.Barrier()
            before = time.perf_counter()
            work()
            took = world.allreduce(time.perf_counter() - before, MPI.MAX)
            if run > 1:
                seconds[name].append(took)
    if world.rank == 0:
        print(f"{values * 4 / 1e6:g} MB, {world.size} ranks, {runs} runs" + ", sums in order" * deterministic)
        for name, own in seconds.items():
            over = [100 * (s / bare - 1) for s, bare in zip(own, seconds["Allreduce"], strict=True)]
            print(f"{name:24s} {1e3 * statistics.median(own):8.1f} ms ({1e3 * min(own):.1f} to {1e3 * max(own):.1f})  "
                  f"overhead {statistics.median(over):6.1f} % ({min(over):.1f} to {max(over):.1f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=100.0)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--deterministic", action="store_true", help="sums in the order of ranks")
    args = parser.parse_args()
    torch.set_num_threads(1)
    on_ranks(args.ranks, lambda folder: measure(int(args.megabytes * 1e6 / 4), args.runs, args.deterministic))


if __name__ == "__main__":
    main()
