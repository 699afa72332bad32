"""Chain training by two MPI ranks over one, end to end, data included: an experiment's own chunks and network.

    tests/bench/run.sh chain_ranks egs/an4/s5/exp/chain/tdnn [--dtype bf16] [--strategy ma] [--average-period 10] [--runs 5]

The folder is one that steps/nnet3/chain/train.py has prepared; nothing in it changes. Each run trains an epoch to warm up and two that are
timed, with one worker, then with one in each of two ranks, one thread a process. Rates are input frames a second of an epoch's time as
history.jsonl has it, held-out data not counted; medians of the runs, between their extremes. Speed-ups are of neighbouring runs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

RANKS, EPOCHS = 2, 3


def rate(exp: Path, folder: Path, workers: int, args: argparse.Namespace) -> float:
    """Input frames a second of the epochs after the first."""
    job = ["--ngpu", str(workers), "--strategy", args.strategy, "--average-period", str(args.average_period), "--dtype", args.dtype]
    over = ["--nproc", str(RANKS), "--fabric", "mpi"] if workers > 1 else []
    command = [sys.executable, "-m", "pykaldist", "train", "--objective", "chain", "--optimizer", "nnet3", "--initial-model", exp / "0.raw",
               "--leaky-hmm-coefficient", "0.1", "--xent-regularize", "0.1", "--num-chunk-per-minibatch", str(args.chunks),
               "--schedule", "fixed", "--learn-rates", ",".join(["0.0005"] * EPOCHS), "--num-threads", "1", "--device", "cpu",
               *job, *over, exp / "store", folder]
    subprocess.run(command, check=True, capture_output=True)
    lines = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()][1:]
    return sum(line["frames"] for line in lines) / sum(line["seconds"]["total"] for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("exp", type=Path)
    parser.add_argument("--dtype", default="float32", choices=("float32", "bf16"))
    parser.add_argument("--strategy", default="ma")
    parser.add_argument("--average-period", type=int, default=10)
    parser.add_argument("--chunks", type=int, default=32, help="of a minibatch")
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    found: dict[int, list[float]] = {1: [], RANKS: []}
    print(f"{args.strategy}, period {args.average_period}, {args.dtype}, {args.chunks} chunks a minibatch, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as temporary:
        for run in range(args.runs):
            for workers, rates in found.items():
                rates.append(rate(args.exp, Path(temporary) / f"{run}.{workers}", workers, args))
    for workers, rates in found.items():
        print(f"{workers} ranks: {statistics.median(rates):.0f} frames/s ({min(rates):.0f} to {max(rates):.0f})")
    speed_ups = [both / one for one, both in zip(*found.values(), strict=True)]
    print(f"{RANKS} ranks over one: {statistics.median(speed_ups):.2f} ({min(speed_ups):.2f} to {max(speed_ups):.2f})")


if __name__ == "__main__":
    main()
