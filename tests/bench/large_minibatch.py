"""The largest global minibatch that 16 simulated workers bear, ssgd against adpsgd: held-out loss on AN4's fMLLR features, equal epochs.

    tests/bench/run.sh large_minibatch --out DIR [--shared ../shared] [--strategies "ssgd,adpsgd --pattern ring"] [--seeds 0,1,2] [--jobs 1]
                                       [--lr-scale linear|sqrt] [--beyond 0]

One worker trains with minibatches of 256; 16 on the simulated V100 cluster with global ones of 1,024, 2,048 and so on, until the held-out
loss after the last epoch is more than 5 % above one worker's with the same seed. A frame has the same learning rate in all, so that a
step grows with the global minibatch (linear scaling; with sqrt, as its root), with linear warm-up and annealing by 1/sqrt(2) an epoch
(Zhang et al., 2019). DIR gets the frame store and a folder for each run; what is there is not made again, so the command can be stopped
and run again.

The cluster. Its seconds are scaled so that a worker's minibatch of a global one of 1,024, and a model's way over a link, take as long for
this network as the published ones did for theirs. Minibatches' times vary by 10 %, which is not published: without it, asynchronous
workers go in step.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shlex
import statistics
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from golden import make_store

from pykaldist.frames.store import FrameStore
from pykaldist.nnet.dnn import DnnOptions, make_dnn
from pykaldist.parallel.clusters.cluster import Cluster, Link
from pykaldist.parallel.strategies.adpsgd import PATTERNS

WORKERS, ALONE, FIRST, LAST = 16, 256, 1024, 65536
TOLERANCE = 1.05  # of one worker's held-out loss
SPREAD = 0.1
SPLICE, LAYERS, UNITS = 5, 2, 128
RATE = 0.016  # of one worker; 0.032 is no better, and with 256 units neither are 0.004 and 0.008
EPOCHS = 8
TRAINING = (f"--splice {SPLICE} --hid-layers {LAYERS} --hid-dim {UNITS} --schedule warmup --warmup-epochs 2 "
            "--on-divergence stop --device cpu --num-threads 1")
STRATEGIES = ("ssgd", *(f"adpsgd --pattern {pattern}" for pattern in PATTERNS))


def scaled_link(link: Link | None, share: float) -> Link | None:
    return link and Link(link.bandwidth * share, link.latency)


def stand_in(name: str, store: Path, **changes: Any) -> Cluster:
    """A known cluster at which the network of `TRAINING` takes the time of the published one."""
    cluster, data = Cluster.read(name), FrameStore(store / "train").manifest
    shape = DnnOptions(hid_layers=LAYERS, hid_dim=UNITS)
    parameters = len(make_dnn(shape, (2 * SPLICE + 1) * data.dim, data.num_pdfs, "meta").params)
    share = parameters / cluster.workload.parameters
    work = dataclasses.replace(cluster.workload, parameters=parameters, minibatch_size=FIRST // WORKERS, frames=data.num_frames)
    return dataclasses.replace(cluster, workload=work, compute=dataclasses.replace(cluster.compute, spread=SPREAD), sources={},
                               within=scaled_link(cluster.within, share), between=scaled_link(cluster.between, share), **changes)


def train(store: Path, exp: Path, cluster: Path, seed: int, strategy: str, ngpu: int, minibatch_size: int,
          epochs: int = EPOCHS, rate: float = RATE) -> list[dict[str, Any]]:
    """Train on one core, as far as it has not been done: the lines of history.jsonl; none where training broke off."""
    log = exp / "train.log"
    if not (exp / "final.pt").exists() and not broke_off(log):
        exp.mkdir(parents=True, exist_ok=True)
        seeds = [word for name in ("seed", "randomizer-seed", "simulation-seed") for word in (f"--{name}", str(seed))]
        words = ["--strategy", *shlex.split(strategy), "--ngpu", str(ngpu), "--minibatch-size", str(minibatch_size), *TRAINING.split(),
                 "--num-epochs", str(epochs), "--learn-rate", repr(rate), *seeds, "--cluster", str(cluster)]
        single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        with open(log, "w", encoding="utf-8") as stream:
            status = subprocess.run([sys.executable, "-m", "pykaldist", "train", *words, str(store), str(exp)], stdout=stream,
                                    stderr=subprocess.STDOUT, env={**os.environ, **single}, check=False).returncode
        if status and not broke_off(log):
            sys.exit(f"{Path(sys.argv[0]).name}: ERROR: pykaldist train ended with status {status}; see {log}.")
    if broke_off(log):
        return []
    return [json.loads(line) for line in (exp / "history.jsonl").read_text(encoding="utf-8").splitlines()]


def broke_off(log: Path) -> bool:
    """Divergence, in the log of a run."""
    return log.exists() and "training diverged" in log.read_text(encoding="utf-8")


def prepare(args: argparse.Namespace) -> Path:
    """The frame store, made where there is none."""
    store = args.out / "store"
    if not (store / "dev" / "manifest.json").exists():
        make_store(args.shared / "golden" / "an4_kaldi", store)
    return store


def arguments(about: str | None, strategies: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=Path("../shared"), help="folder with golden/ (default: ../shared)")
    parser.add_argument("--out", type=Path, required=True, help="folder for everything that is made")
    parser.add_argument("--strategies", default=",".join(strategies), help="with commas between them, each with options of its own")
    parser.add_argument("--seeds", default="0,1,2", help="of weights, frames and simulated times (default: 0,1,2)")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time (default: 1)")
    return parser


def folder(*words: object) -> str:
    """A run's."""
    return "-".join(str(word) for word in words).replace(" --", "-").replace(" ", "-")


def final_loss(history: list[dict[str, Any]]) -> float:
    """On held-out data after the last epoch; infinite where training broke off."""
    return history[-1]["cv_loss"] if history else float("inf")


def sweep(out: Path, store: Path, cluster: Path, strategy: str, seed: int, lr_scale: str, beyond: int) -> dict[int, float]:
    """Global minibatch -> held-out loss over one worker's, up to the first that is too large, and so many beyond it."""
    one = final_loss(train(store, out / folder("one", seed), cluster, seed, "local", 1, ALONE))
    found: dict[int, float] = {}
    size = FIRST
    while size <= LAST and sum(ratio > TOLERANCE for ratio in found.values()) <= beyond:
        rate, more = (RATE, []) if lr_scale == "linear" else (RATE * (ALONE / size) ** 0.5, [lr_scale])
        exp = out / folder(strategy, size, seed, *more)
        history = train(store, exp, cluster, seed, strategy, WORKERS, size // WORKERS, rate=rate)
        found[size] = final_loss(history) / one
        print(f"{strategy}, {size}, seed {seed}: held-out loss {final_loss(history):.4f}, one worker's {one:.4f}", flush=True)
        size *= 2
    return found


def cell(values: Iterable[float]) -> str:
    """Losses over one worker's in % more, the mean and the range."""
    percent = sorted(100 * (value - 1) for value in values)
    if not percent:
        return ""
    spread = f" ({percent[0]:+.1f} to {percent[-1]:+.1f})" if len(percent) > 1 else ""
    return f"{statistics.mean(percent):+.1f}{spread}"


def main() -> None:
    parser = arguments(__doc__, STRATEGIES)
    parser.add_argument("--lr-scale", default="linear", choices=("linear", "sqrt"), help="of a step with the global minibatch (linear)")
    parser.add_argument("--beyond", type=int, default=0, help="sizes to try beyond the first that is too large (0)")
    args = parser.parse_args()
    out, seeds = args.out, [int(seed) for seed in args.seeds.split(",")]
    store, cluster = prepare(args), out / "v100.json"
    stand_in("v100-ethernet", store).write(cluster)
    strategies = args.strategies.split(",")
    with ThreadPoolExecutor(args.jobs) as pool:
        sweeps = {(strategy, seed): pool.submit(sweep, out, store, cluster, strategy, seed, args.lr_scale, args.beyond)
                  for seed in seeds for strategy in strategies}
        results = {key: future.result() for key, future in sweeps.items()}
    sizes = sorted({size for found in results.values() for size in found})
    print("| strategy | " + " | ".join(f"{size:,}" for size in sizes) + " | largest within 5 % |")
    print("| --- " * (len(sizes) + 2) + "|")
    for strategy in strategies:
        found = [results[strategy, seed] for seed in seeds]
        largest = [max((size for size in one if all(one[k] <= TOLERANCE for k in one if k <= size)), default=0) for one in found]
        cells = [cell(one[size] for one in found if size in one) for size in sizes]
        print(f"| {strategy} | " + " | ".join(cells) + f" | {', '.join(f'{size:,}' if size else 'none' for size in largest)} |")


if __name__ == "__main__":
    main()
