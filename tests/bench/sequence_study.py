"""Does sequence training bear averaging? sMBR, MPE and MMI on AN4, on one worker and under strategies: held-out objective and WER.

    tests/bench/run.sh sequence_study --recipe egs/an4/s5 --out DIR [--runs smbr,n16_ma10,...] [--seeds 0,1,2]

`--recipe` is the folder of AN4's recipe after stages 0 to 2 of its run.sh; its data, alignments and graph of the monophones are used. For
each seed: a network of 2 x 128 by cross-entropy, its alignments, its denominator lattices; then, from that network, three epochs of each
run, an utterance an update, and the decoding of the test set. Every run is on a simulated cluster, where an utterance of the mean length
takes the time of a published minibatch, and a model's way over a link that of a published model. `simulated` are its seconds of an epoch;
`measured` is what an epoch took here, all workers one after the other. DIR gets everything; what is there is not made again, so the command
can be stopped and run again. `--list true` prints what the runs are made of.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from pykaldist.cli import main
from pykaldist.frames.sampler import Partition
from pykaldist.frames.sequences import SequenceOptions, SequenceSampler
from pykaldist.frames.store import FrameStore
from pykaldist.nnet.dnn import DnnOptions, make_dnn
from pykaldist.nnet.learner import Supervised
from pykaldist.nnet.network import Network
from pykaldist.nnet.objective import CrossEntropy
from pykaldist.nnet.objectives import OBJECTIVES
from pykaldist.options import boolean
from pykaldist.parallel.clusters.cluster import Cluster, Link

LAYERS, UNITS, SPLICE = 2, 128, 5
HERE = "--device cpu --num-threads 1 --fabric virtual"
SHAPE = f"--hid-layers {LAYERS} --hid-dim {UNITS} --splice {SPLICE}"
XENT = "--schedule exponential --learn-rate 0.008 --final-learn-rate 0.0008 --num-epochs 6"
BEAMS = ("--beam", 11, "--lattice-beam", 6, "--max-active", 2000)
EPOCHS, RATE = 3, 0.0002
WORKERS, PERIODS = (4, 8, 16), (1, 2, 5, 10, 20)
SMBR = "--objective smbr"


def several(workers: int, strategy: str) -> str:
    return f"{SMBR} --ngpu {workers} --strategy {strategy}"


RUNS = {
    **{f"smbr_rate_{rate:g}": f"{SMBR} --learn-rates {','.join([repr(rate)] * EPOCHS)}" for rate in (RATE / 3, 3 * RATE)},
    "smbr": SMBR, "mpe": "--objective mpe", "mmi": "--objective mmi", "bmmi": "--objective mmi --boost 0.1",
    **{f"n{n}_ma{period}": several(n, f"ma --average-period {period}") for n in WORKERS for period in PERIODS},
    **{f"n{n}_bmuf5_{name}": several(n, f"bmuf --average-period 5 --nesterov {name == 'nesterov'}".lower())
       for n in (8, 16) for name in ("classical", "nesterov")},
    **{f"n{n}_{name}": several(n, name) for n in (8, 16) for name in ("ssgd", "adpsgd", "asgd")},
    "n8_asgd_no_discount": several(8, "asgd --staleness-discount false"),
    **{f"n16_ma10_rate_x{times}": several(16, f"ma --average-period 10 --lr-scale {scale}") for times, scale in ((1, "none"), (4, "sqrt"))},
    **{f"{name}_smoothed": several(n, strategy) + " --xent-smoothing 0.1"
       for name, n, strategy in (("n16_ma10", 16, "ma --average-period 10"), ("n8_asgd", 8, "asgd"))},
    "n16_ma10_mmi": several(16, "ma --average-period 10").replace("smbr", "mmi"),
}


BEFORE = re.compile(r"before training: .* expected accuracy ([\d.]+), WER on lattices ([\d.]+)")
COLUMNS = ("run", "seeds", "held-out objective", "held-out WER on lattices, %", "WER, %", "fewer errors than cross-entropy, %",
           "disagreement x 1000", "simulated s an epoch", "measured s")


class Study:
    """The folder of a study, and what it is made from."""

    def __init__(self, recipe: Path, out: Path, rate: float) -> None:
        self.recipe, self.out, self.rate = recipe.resolve(), out.resolve(), rate
        self.store = self.out / "store"

    def verb(self, log: str, *words: object) -> None:
        """A `pykaldist` verb in this process, its output in a log."""
        path = self.out / "log" / f"{log}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "w", encoding="utf-8") as stream, contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
            status = main([str(word) for word in words])
        if status:
            sys.exit(f"sequence_study.py: ERROR: pykaldist {words[0]} ended with status {status}; see {path}.")

    def stage(self, log: str, *command: object) -> None:
        """A stage script in the recipe's folder."""
        with open(self.out / "log" / f"{log}.log", "w", encoding="utf-8") as stream:
            status = subprocess.run(list(map(str, command)), cwd=self.recipe, stdout=stream, stderr=stream, check=False).returncode
        if status:
            sys.exit(f"sequence_study.py: ERROR: {command[0]} ended with status {status}; see {stream.name}.")

    def cluster(self) -> Path:
        """A known cluster, its times and links scaled to an utterance of the mean length and this network."""
        path = self.out / "v100.json"
        data, known = FrameStore(self.store / "train").manifest, Cluster.read("v100-ethernet")
        shape = DnnOptions(hid_layers=LAYERS, hid_dim=UNITS)
        parameters = len(make_dnn(shape, (2 * SPLICE + 1) * data.dim, data.num_pdfs, "meta").params)
        work = dataclasses.replace(known.workload, parameters=parameters, minibatch_size=round(data.num_frames / data.num_utts),
                                   frames=data.num_frames)
        assert known.between is not None
        share = parameters / known.workload.parameters
        link = Link(known.between.bandwidth * share, known.between.latency)
        compute = dataclasses.replace(known.compute, spread=0.1)
        dataclasses.replace(known, workload=work, compute=compute, sources={}, between=link).write(path)
        return path

    def prepare(self, seed: int) -> None:
        """The network of cross-entropy, its alignments and its lattices, as far as they are not there."""
        xent, ali, denlats = (self.out / f"{name}.{seed}" for name in ("xent", "ali", "denlats"))
        if not (self.store / "dev" / "manifest.json").exists():
            self.verb("pack", "pack", "--delta-opts=--delta-order=2", self.recipe / "data/train", self.recipe / "exp/mono_ali", self.store)
        if not (xent / "final.pt").exists():
            self.verb(f"xent.{seed}", "train", *HERE.split(), *SHAPE.split(), *XENT.split(), *seeds(seed), self.store, xent)
        self.decode(xent)
        if not (ali / "ali.1.gz").exists():
            self.stage(f"ali.{seed}", "steps/nnet/align.sh", "--nj", 1, "data/train", "data/lang", xent, ali)
        if not (denlats / "store" / "manifest.json").exists():
            self.stage(f"denlats.{seed}", "steps/nnet/make_denlats.sh", "--nj", 1, *BEAMS, "data/train", "data/lang", xent, denlats)
            self.verb(f"lattices.{seed}", "pack-lattices", self.recipe / "data/lang", ali, denlats, denlats / "store")

    def decode(self, exp: Path) -> None:
        decode = exp / "decode"
        if not (decode / "best_wer").exists():
            graph, test = self.recipe / "exp/mono/graph", self.recipe / "data/test"
            decode.mkdir(exist_ok=True)
            self.verb(f"{exp.name}.decode", "decode", *BEAMS, "--acwt", 0.1, "--device", "cpu", graph, test, decode)
            (decode / "acwt").write_text("0.1\n", encoding="utf-8")
            self.verb(f"{exp.name}.score", "score", "--min-lmwt", 1, "--max-lmwt", 15, test, graph, decode)

    def train(self, name: str, seed: int) -> None:
        """Train from the network of cross-entropy, and decode, as far as it has not been done."""
        exp, xent = self.out / f"{name}.{seed}", self.out / f"xent.{seed}"
        if not (exp / "final.pt").exists():
            before = time.perf_counter()
            self.verb(exp.name, "train", *HERE.split(), *SHAPE.split(), *seeds(seed), "--simulation-seed", seed,
                      "--cluster", self.cluster(), "--nnet-init", xent / "final.nnet",
                      "--feature-transform", xent / "final.feature_transform",
                      "--class-frame-counts", xent / "ali_train_pdf.counts", "--denlats", self.out / f"denlats.{seed}" / "store",
                      "--schedule", "fixed", "--learn-rates", ",".join([repr(self.rate)] * EPOCHS), *RUNS[name].split(), self.store, exp)
            (exp / "measured").write_text(f"{(time.perf_counter() - before) / EPOCHS:.2f}\n", encoding="utf-8")
        self.decode(exp)


    def gradients(self, seed: int) -> None:
        """Print how sparse and how noisy gradients of utterances are at the network of cross-entropy: the noise is that of a mean over n
        utterances in per cent of its length, 100 sqrt(noise scale / n), for n = 1 and 16 (McCandlish et al., 2018)."""
        network, store = Network.load(self.out / f"xent.{seed}" / "final.pt"), FrameStore(self.store / "train")
        cut, whole = SequenceOptions(sequences="whole", num_streams=1), Partition(store, level="utterance")
        transform = network.transform
        sampler = SequenceSampler(store, whole, 0, cut, transform.splice, transform.shift, transform.scale, 0, torch.device("cpu"),
                                  padded=False)
        denlats = str(self.out / f"denlats.{seed}" / "store")
        kinds = {"xent": CrossEntropy(), **{name: OBJECTIVES[name](OBJECTIVES[name].options_class(denlats=denlats))
                                            for name in ("smbr", "mpe", "mmi")}}
        print("| objective | frames with a derivative above 0.1, % | noise of one utterance, % | of 16 |\n| --- | --- | --- | --- |")
        for name, objective in kinds.items():
            objective.prepare(store, store)
            learner, count, frames, felt = Supervised(network.model, objective), 0, 0, 0
            grads = torch.zeros_like(network.model.params)
            total, square = torch.zeros(len(grads), dtype=torch.float64), 0.0
            learner.reserve(sampler.capacity)
            for minibatch in sampler.in_order():
                totals = torch.zeros(learner.num_totals, dtype=torch.float64)
                outputs = network.model.forward(minibatch.inputs, None, minibatch.sequences, training=True)
                derivative = objective(outputs, minibatch, totals)
                felt, frames = felt + int((derivative.abs().sum(1) > 0.1).sum()), frames + len(derivative)
                learner.gradient(minibatch, grads, 0.0, totals)
                total += grads
                square, count = square + float(grads.double().pow(2).sum()), count + 1
            length = float((total / count).pow(2).sum())
            noise = (square / count - length) * count / (count - 1)
            scale = noise / (length - noise / count)
            print(f"| {name} | {100 * felt / frames:.1f} | {100 * scale**0.5:.0f} | {25 * scale**0.5:.0f} |")


def seeds(seed: int) -> tuple[object, ...]:
    return "--seed", seed, "--randomizer-seed", seed


def wer(exp: Path) -> float:
    match = re.match(r"%WER ([\d.]+) ", (exp / "decode" / "best_wer").read_text(encoding="utf-8"))
    assert match, exp
    return float(match[1])


def history(exp: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (exp / "history.jsonl").read_text(encoding="utf-8").splitlines()]


def objective(exp: Path) -> float:
    """Of held-out data after the last epoch: the expected accuracy of sMBR or MPE in %, or MMI's value a frame."""
    last = history(exp)[-1]
    return 100 * last["cv_expected_accuracy"] if "cv_expected_accuracy" in last else last["cv_mmi"]


def mean(values: Sequence[float], digits: int = 2, sign: str = "") -> str:
    spread = f" ({min(values):{sign}.{digits}f} to {max(values):{sign}.{digits}f})" if len(values) > 1 else ""
    return f"{statistics.mean(values):{sign}.{digits}f}{spread}"


def row(out: Path, name: str, seeds: Sequence[int]) -> str:
    exps = [out / f"{name}.{seed}" for seed in seeds]
    xent = [wer(out / f"xent.{seed}") for seed in seeds]
    found = [wer(exp) for exp in exps]
    gains = [100 * (before - after) / before for before, after in zip(xent, found, strict=True)]
    if name == "xent":
        before = [BEFORE.search((out / "log" / f"smbr.{seed}.log").read_text(encoding="utf-8")) for seed in seeds]
        accuracies, on_lattices = zip(*((100 * float(b[1]), float(b[2])) for b in before if b), strict=True)
        return f"| xent | {len(seeds)} | {mean(accuracies)} | {mean(on_lattices, 1)} | {mean(found)} | | | | |"
    lines = [history(exp) for exp in exps]

    def over(value: Callable[[list[dict[str, Any]]], float]) -> float:
        return statistics.mean(map(value, lines))

    apart, simulated = over(lambda h: h[-1]["disagreement"]), over(lambda h: statistics.mean(line["seconds"]["total"] for line in h))
    measured = statistics.mean(float((exp / "measured").read_text(encoding="utf-8")) for exp in exps)
    value = mean([objective(exp) for exp in exps], 4 if "cv_mmi" in lines[0][-1] else 2)
    on_lattices = mean([100 * line[-1]["cv_wer"] for line in lines], 1)
    distance = f"{1000 * apart:.1f}" if apart else ""
    return (f"| {name} | {len(seeds)} | {value} | {on_lattices} | {mean(found)} | {mean(gains, 1, '+')} | {distance} | {simulated:.1f} | "
            f"{measured:.0f} |")


def study() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", type=Path, default=Path("egs/an4/s5"), help="AN4's recipe after stage 2 (default: egs/an4/s5)")
    parser.add_argument("--out", type=Path, help="folder for everything that is made")
    parser.add_argument("--runs", default=",".join(RUNS), help="which (default: all)")
    parser.add_argument("--seeds", default="0,1,2", help="of weights, utterances and simulated times (default: 0,1,2)")
    parser.add_argument("--learn-rate", type=float, default=RATE, help=f"before scaling ({RATE:g})")
    parser.add_argument("--gradients", type=boolean, default=False, help="true: print how noisy gradients are after cross-entropy, and end")
    parser.add_argument("--list", type=boolean, default=False, help="true: print what the runs are made of, and end")
    args = parser.parse_args()
    if args.list:
        for name, options in RUNS.items():
            print(f"{name:20s} {options}")
        return
    if args.out is None:
        parser.error("--out is needed")
    names, chosen = args.runs.split(","), [int(seed) for seed in args.seeds.split(",")]
    if unknown := set(names) - set(RUNS):
        parser.error(f"there is no run {', '.join(sorted(unknown))}; --list true shows them")
    found = Study(args.recipe, args.out, args.learn_rate)
    torch.set_num_threads(1)
    for seed in chosen:
        found.prepare(seed)
    if args.gradients:
        with torch.no_grad():
            for seed in chosen:
                found.gradients(seed)
        return
    print(f"| {' | '.join(COLUMNS)} |\n| {' | '.join(['---'] * len(COLUMNS))} |")
    for name in names:
        for seed in chosen:
            found.train(name, seed)
        print(row(found.out, name, chosen), flush=True)
    if all((found.out / f"smbr.{seed}").exists() for seed in chosen):
        print(row(found.out, "xent", chosen))


if __name__ == "__main__":
    study()
