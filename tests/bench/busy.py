"""What a busy machine costs: each computing verb's rate with one other busy process a core, over its rate on an idle machine.

    tests/bench/run.sh busy                                 # networks and RBMs, on random frames
    tests/bench/run.sh busy --recipe egs/an4/s5 --runs 5    # GMMs, alignment and decoding too: a recipe that was run, with exp/mono
    tests/bench/run.sh busy --rows "train, 2 ranks ma"

Every run does a row twice, on the idle machine and beside as many busy loops as there are cores; the loops belong to this benchmark and end
with it. A run in which yet others had more than `--others` % of the machine is made again. Rows are `pykaldist` verbs with their own choice
of threads, in processes of their own, as the stages start them. Networks and RBMs: frames/s of all epochs but the first, as history.jsonl
has them (440-512x4-712, NG-SGD, minibatch 256). The others: utterances/s of the whole verb, start-up included. Medians over runs, with
their spread, and the median of the runs' ratios.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from pykaldist.frames.store import pack
from pykaldist.io.datadir import DataDir

DIM, PDFS, UTT = 40, 712, 1024
TRIES = 4  # a run
NETWORK = ["--splice", "5", "--hid-layers", "4", "--hid-dim", "512", "--minibatch-size", "256", "--device", "cpu"]
TRAIN = [*NETWORK, "--optimizer", "ngsgd", "--schedule", "fixed"]
RANKS = ["--ngpu", "2", "--nproc", "2"]
# It ends when the benchmark does, however that ends (PR_SET_PDEATHSIG, SIGKILL).
LOOP = "import ctypes; ctypes.CDLL(None).prctl(1, 9)\nwhile True: pass"


def run(*commands: list[object]) -> float:
    """Run verbs at the same time; seconds until the last has ended."""
    before = time.perf_counter()
    jobs = [subprocess.Popen([sys.executable, "-m", "pykaldist", *map(str, command)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            for command in commands]
    errors = [job.communicate()[1].decode() for job in jobs]
    for job, error in zip(jobs, errors, strict=True):
        if job.returncode:
            sys.exit(f"busy: pykaldist {' '.join(job.args[3:])} ended with status {job.returncode}:\n{error}")
    return time.perf_counter() - before


def measured(work: Callable[[], float], loops: int) -> tuple[float, float]:
    """(what `work` returns, beside so many busy loops; the share of the machine's time that went to processes of others)."""
    before, all_before, own_before = time.perf_counter(), machine_seconds(), sum(os.times()[:4])
    with busy(loops):
        rate = work()
    while adopted():
        pass
    cores = os.cpu_count() or 1
    return rate, (machine_seconds() - all_before - sum(os.times()[:4]) + own_before) / (time.perf_counter() - before) / cores


def adopted() -> bool:
    """Wait for a process whose parent has ended before it, so that its time counts as ours; False where there is none."""
    with contextlib.suppress(ChildProcessError):
        return os.waitpid(-1, 0)[0] > 0
    return False


def machine_seconds() -> float:
    """CPU seconds of all processes since the machine's start."""
    user, nice, system, _, _, irq, softirq = map(int, Path("/proc/stat").read_text().split(maxsplit=8)[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def busy(loops: int) -> Iterator[None]:
    """While this is entered, so many processes compute for nobody."""
    others = [subprocess.Popen([sys.executable, "-c", LOOP]) for _ in range(loops)]
    try:
        time.sleep(0.5 if loops else 0.0)  # for them to be under way
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def random_store(folder: Path, frames: int) -> Path:
    rng = np.random.default_rng(0)
    for part, count in (("train", frames), ("dev", UTT)):
        utts = [f"{part}{i}" for i in range(-(-count // UTT))]
        pack(utts, lambda utt: rng.standard_normal((UTT, DIM), np.float32), lambda utt: rng.integers(0, PDFS, UTT), PDFS, folder / part)
    return folder


class Rows:
    """`work[name](seconds)` is a row's rate in a run that is to last about so long; everything is written below `folder`."""

    def __init__(self, folder: Path, recipe: Path | None, frames: int, epochs: int) -> None:
        self.folder, self.recipe, self.epochs = folder, recipe, epochs
        self.store = random_store(folder / "store", frames)
        self.work: dict[str, Callable[[], float]] = {
            "train, 1 worker": lambda: self.train(),
            "train, 2 ranks ma": lambda: self.train(*RANKS, "--strategy", "ma"),
            "train, 2 ranks adpsgd": lambda: self.train(*RANKS, "--strategy", "adpsgd", "--pattern", "pairwise"),
            "pretrain RBM": lambda: self.epochs_of("pretrain-dbn", *NETWORK, "--gauss-minibatch-size", "256", "--hid-layers", "2")}
        if recipe is not None:
            self.data, self.test, self.mono = recipe / "data/train", recipe / "data/test", recipe / "exp/mono"
            nj = len(os.sched_getaffinity(0))
            share = ["--nj", nj]
            gmm = [self.data, recipe / "data/lang"]
            shutil.copytree(self.mono, folder / "mono", ignore=shutil.ignore_patterns("log", "decode*", "lat.*"))
            decode = [["decode", *share, "--job", job + 1, self.mono / "graph", self.test, folder / "mono/decode"] for job in range(nj)]
            self.work |= {
                "GMM training": lambda: self.utterances(self.data, ["train-mono", *share, *gmm, folder / "gmm"]),
                "GMM alignment": lambda: self.utterances(self.data, ["align-si", *share, *gmm, self.mono, folder / "ali"]),
                "decoding": lambda: self.utterances(self.test, *decode)}
            (folder / "mono/decode").mkdir()

    def train(self, *options: str) -> float:
        rates = ",".join(["0.0001"] * self.epochs)
        return self.epochs_of("train", *TRAIN, "--learn-rates", rates, *options)

    def epochs_of(self, verb: str, *options: str) -> float:
        """Frames/s of a training verb, without its first epoch."""
        with tempfile.TemporaryDirectory(dir=self.folder) as exp:
            run([verb, *options, self.store, exp])
            lines = [json.loads(line) for line in Path(exp, "history.jsonl").read_text().splitlines()][1:]
        return sum(line["frames"] for line in lines) / sum(line["seconds"]["total"] for line in lines)

    def utterances(self, data: Path, *commands: list[object]) -> float:
        return len(DataDir(data).utt2spk) / run(*commands)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", type=Path, help="a recipe's folder with data/{train,test,lang} and exp/mono with its graph")
    parser.add_argument("--rows", nargs="+", help="only these rows")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--frames", type=int, default=20480, help="in an epoch")
    parser.add_argument("--epochs", type=int, default=3, help="of a network, the first of which is not counted")
    parser.add_argument("--others", type=float, default=5.0, help="largest share of the machine that others may have, in %% (default: 5)")
    parser.add_argument("--loops", type=int, default=len(os.sched_getaffinity(0)), help="busy processes (default: the machine's cores)")
    args = parser.parse_args()
    ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: processes whose parents end before them become ours
    with tempfile.TemporaryDirectory() as folder:
        rows = Rows(Path(folder), args.recipe, args.frames, args.epochs)
        chosen = args.rows or list(rows.work)
        if unknown := sorted(set(chosen) - set(rows.work)):
            parser.error(f"--rows {unknown[0]!r}: expected {', '.join(map(repr, rows.work))}" + " (GMMs and decoding: with --recipe)")
        print(f"{args.runs} runs, {args.loops} busy loops on {len(os.sched_getaffinity(0))} cores, {args.frames:,} frames an epoch")
        print(f"{'row':24s} {'idle':>8s}  {'(min to max)':18s} {'busy':>8s}  {'(min to max)':18s} {'busy / idle':>11s}  (min to max)")
        for name in chosen:
            if name in ("GMM training", "GMM alignment", "decoding"):
                rows.work[name]()  # its kernels are compiled
            idle, loaded = [], []
            for _ in range(TRIES * args.runs):
                found = [measured(rows.work[name], loops) for loops in (0, args.loops)]
                if max(others for _, others in found) <= args.others / 100:
                    idle.append(found[0][0])
                    loaded.append(found[1][0])
                if len(idle) == args.runs:
                    break
            if not idle:
                print(f"{name:24s} others kept the machine busy")
                continue
            shares = [100 * b / i for b, i in zip(loaded, idle, strict=True)]
            print(f"{name:24s} {spread(idle)} {spread(loaded)} {statistics.median(shares):9.0f} %  ({min(shares):.0f} to {max(shares):.0f})"
                  + f"  {len(idle)} runs" * (len(idle) < args.runs), flush=True)


def spread(rates: list[float]) -> str:
    digits = 0 if max(rates) >= 100 else 1
    around = f"({min(rates):.{digits}f} to {max(rates):.{digits}f})"
    return f"{statistics.median(rates):8.{digits}f}  {around:18s}"


if __name__ == "__main__":
    main()
