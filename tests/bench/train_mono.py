"""Time of monophone training and of alignment, whole stages with their start-up, for one job and for two.

    tests/bench/run.sh train_mono egs/an4/s5/data/train egs/an4/s5/data/lang [--runs 3]

Kaldi's steps/train_mono.sh on AN4 (948 utterances), idle machine: 78 s with one job, 45 s with two.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def seconds(*command: object) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "pykaldist", *map(str, command)], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="data directory with MFCC and CMVN statistics")
    parser.add_argument("lang", help="language directory")
    parser.add_argument("--runs", type=int, default=3, help="runs of each measurement (default: 3)")
    args = parser.parse_args()
    print("jobs  stage        seconds: median (min-max)")
    with tempfile.TemporaryDirectory() as work:
        mono, ali = Path(work) / "mono", Path(work) / "ali"
        seconds("train-mono", "--num-iters", 3, args.data, args.lang, mono)  # compiles the kernels
        for nj in (1, 2):
            for stage, command in (("train-mono", ("train-mono", "--nj", nj, args.data, args.lang, mono)),
                                   ("align-si", ("align-si", "--nj", nj, args.data, args.lang, mono, ali))):
                times = [seconds(*command) for _ in range(args.runs)]
                print(f"{nj:4d}  {stage:11s}  {statistics.median(times):.1f} ({min(times):.1f}-{max(times):.1f})", flush=True)


if __name__ == "__main__":
    main()
