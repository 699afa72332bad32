"""Time of all GMM stages from monophones to speaker-adaptive training, alignments between them included: wall clock, and CPU of all jobs.

    tests/bench/run.sh train_gmm egs/an4/s5/data/train egs/an4/s5/data/lang [--nj 2]

Kaldi on AN4 (948 utterances, 1800 leaves asked for, 9000 Gaussians) with two jobs on a busy machine: 363 s.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def seconds(*command: object) -> tuple[float, float]:
    """Wall clock and CPU seconds (user and system) of a verb."""
    start, before = time.perf_counter(), os.times()
    subprocess.run([sys.executable, "-m", "pykaldist", *map(str, command)], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    after = os.times()
    return time.perf_counter() - start, after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="data directory with MFCC and CMVN statistics")
    parser.add_argument("lang", help="language directory")
    parser.add_argument("--nj", type=int, default=2, help="jobs (default: 2)")
    parser.add_argument("--num-leaves", type=int, default=1800, help="leaves of the trees, at most (default: 1800)")
    parser.add_argument("--tot-gauss", type=int, default=9000, help="Gaussians of each system (default: 9000)")
    args = parser.parse_args()
    size = (args.num_leaves, args.tot_gauss)
    print("stage               seconds   of CPU")
    with tempfile.TemporaryDirectory() as work:
        exp = {name: Path(work) / name for name in ("mono", "mono_ali", "tri1", "tri1_ali", "tri2", "tri2_ali", "tri3", "tri3_ali")}
        total = (0.0, 0.0)
        for verb, options, *dirs in (
                ("train-mono", (), exp["mono"]), ("align-si", (), exp["mono"], exp["mono_ali"]),
                ("train-deltas", size, exp["mono_ali"], exp["tri1"]), ("align-si", (), exp["tri1"], exp["tri1_ali"]),
                ("train-lda-mllt", size, exp["tri1_ali"], exp["tri2"]), ("align-si", (), exp["tri2"], exp["tri2_ali"]),
                ("train-sat", size, exp["tri2_ali"], exp["tri3"]), ("align-fmllr", (), exp["tri3"], exp["tri3_ali"])):
            wall, cpu = seconds(verb, "--nj", args.nj, *options, args.data, args.lang, *dirs)
            total = (total[0] + wall, total[1] + cpu)
            print(f"{verb:15s} {wall:10.1f} {cpu:8.1f}", flush=True)
        print(f"{'all':15s} {total[0]:10.1f} {total[1]:8.1f}")


if __name__ == "__main__":
    main()
