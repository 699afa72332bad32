"""What loading takes of training: minibatches of a shuffled store beside a training step, and groups of blocks read from the disk.

    OMP_NUM_THREADS=1 tests/bench/run.sh loading --folder DIR --frames 4000000 [--hid-layers 4] [--hid-dim 512]

A step is that of a 440-512x4-712 network, or one of other hidden layers, minibatches of 256. Its time and that of a minibatch are those of
the main thread's CPU, so that they mean something on a busy machine too; medians over the runs. From the disk: a store's pages are dropped,
then all of its groups are loaded, without splicing, as for a GPU, by the wall clock, and by the CPU that the process takes for it, which is
what is left on an idle machine with a disk that is fast enough; beside it the same files read from end to end by 16 MiB.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

from pykaldist.frames.block_sampler import BLOCK, BlockSampler
from pykaldist.frames.device_frames import SharedFrames
from pykaldist.frames.sampler import Minibatch, Partition, Sampler
from pykaldist.frames.store import STORE_DTYPES, FrameStore, pack
from pykaldist.nnet.dnn import DnnOptions, make_dnn
from pykaldist.nnet.init import init_dnn
from pykaldist.nnet.learner import Supervised
from pykaldist.nnet.objective import CrossEntropy
from pykaldist.optim.registry import OPTIMIZERS, make_optimizer

CPU, DIM, PDFS, LENGTH = torch.device("cpu"), 40, 712, 500
SPLICE = list(range(-5, 6))
MINIBATCH, GROUP = 256, 1 << 18


def make_store(path: Path, frames: int, dtype: str) -> FrameStore:
    """A store of noise, made where it is not there yet."""
    if not (path / "manifest.json").is_file():
        rng = np.random.default_rng(0)
        feats, pdfs = rng.standard_normal((64, LENGTH, DIM), np.float32), rng.integers(0, PDFS, (64, LENGTH))
        pack([f"u{n}" for n in range(frames // LENGTH)], lambda utt: feats[int(utt[1:]) % 64], lambda utt: pdfs[int(utt[1:]) % 64], PDFS,
             path, dtype)
    return FrameStore(path)


def sampler(store: FrameStore, blocks: bool) -> Sampler:
    plain = torch.zeros(DIM * len(SPLICE)), torch.ones(DIM * len(SPLICE))
    shared = SharedFrames(store, CPU, (5, 5), group=GROUP if blocks else 0)
    shared.hold()
    arguments = (store, Partition(store, run=BLOCK if blocks else 1), 0, MINIBATCH, SPLICE, *plain, 0, CPU, shared)
    return BlockSampler(*arguments, randomizer_size=GROUP) if blocks else Sampler(*arguments)


def median_ms(work: Callable[[], object], runs: int, steps: int) -> float:
    """The CPU time of the main thread in ms: of a step, the median over the runs."""
    found = []
    for _ in range(runs):
        before = time.thread_time()
        for _ in range(steps):
            work()
        found.append((time.thread_time() - before) / steps * 1e3)
    return statistics.median(found)


def endless(source: Sampler) -> Iterator[Minibatch]:
    epoch = 0
    while True:
        yield from source.epoch(epoch)
        epoch += 1


def training_step(minibatch: Minibatch, options: DnnOptions) -> Callable[[], object]:
    model = make_dnn(options, DIM * len(SPLICE), PDFS, CPU, torch.float32, torch.float32)
    init_dnn(model, options, torch.Generator().manual_seed(0))
    learner = Supervised(model, CrossEntropy())
    optimizer, totals = make_optimizer("sgd", learner, OPTIMIZERS["sgd"][0]()), torch.zeros(learner.num_totals, dtype=torch.float64)
    return lambda: optimizer.local_step(minibatch, 1e-5, totals)


def forget_pages(path: Path) -> None:
    """Drop the files of a store from the page cache."""
    for file in path.glob("*.bin"):
        with open(file, "rb") as stream:
            os.fsync(stream.fileno())
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def from_disk(store: FrameStore) -> tuple[float, float, float, float]:
    """Frames a second of groups, frames a second of CPU, MB a second of groups, and of the files from end to end."""
    size = sum(file.stat().st_size for file in store.path.glob("*.bin"))
    source = sampler(store, True)
    forget_pages(store.path)
    before, cpu = time.perf_counter(), time.process_time()
    for _ in source._minibatches(0, 0, 0):
        pass
    groups, cpu = time.perf_counter() - before, time.process_time() - cpu
    forget_pages(store.path)
    before = time.perf_counter()
    for file in store.path.glob("*.bin"):
        with open(file, "rb", buffering=0) as stream:
            while stream.read(1 << 24):
                pass
    plain = time.perf_counter() - before
    return len(store) / groups, len(store) / cpu, size / groups / 1e6, size / plain / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where stores are made, and kept")
    parser.add_argument("--frames", type=int, default=4_000_000)
    parser.add_argument("--dtypes", default=",".join(STORE_DTYPES))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200, help="minibatches of a run")
    parser.add_argument("--hid-layers", type=int, default=4)
    parser.add_argument("--hid-dim", type=int, default=512)
    args = parser.parse_args()
    network = DnnOptions(hid_layers=args.hid_layers, hid_dim=args.hid_dim)
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    for dtype in args.dtypes.split(","):
        store = make_store(args.folder / f"{dtype}.{args.frames}", args.frames, dtype)
        for blocks in (False, True):
            source = endless(sampler(store, blocks))
            next(source)
            load = median_ms(lambda source=source: next(source), args.runs, args.steps)  # type: ignore[misc]
            step = median_ms(training_step(next(source), network), args.runs, max(args.steps // 10, 1))
            print(f"{dtype}, {'in two levels' if blocks else 'all shuffled'}: a minibatch {load:.3f} ms, a step {step:.1f} ms: loading "
                  f"{100 * load / (load + step):.2f} %", flush=True)
        frames, of_cpu, rate, plain = from_disk(store)
        print(f"{dtype}, groups from the disk: {frames / 1e6:.2f} M frames/s, {rate:.0f} MB/s; {of_cpu / 1e6:.2f} M frames a second of "
              f"CPU; its files from end to end {plain:.0f} MB/s", flush=True)


if __name__ == "__main__":
    main()
