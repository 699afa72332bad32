r"""Train with chosen strategies on simulated clusters, and draw loss against simulated time and speed-up against N.

  pykaldist simulate --strategies "ssgd,asgd,adpsgd --pattern random-ring" --ngpus 1,4,16 --clusters v100-ethernet --accuracies 60,65 \
      --train-options "--hid-layers 4 --hid-dim 512 --num-epochs 8" exp/dnn/store exp/simulated

Every combination is a run of `pykaldist train` in a folder of its own, with its output in train.log there; run again, those that are
finished stay. One worker is trained once for each cluster. What is left: curves.csv, times.csv, curves.png, and a table.

Without a store nothing is trained: a table of the time that an epoch of the cluster file's own workload takes, and with --plot a picture.

  pykaldist simulate --strategies "hadpsgd,adpsgd --pattern ring" --ngpus 8,64 --clusters v100-ethernet --plot speed_ups.png
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shlex
import signal
import sys
from pathlib import Path

from pykaldist import cli
from pykaldist.cli._json import add_json, print_json
from pykaldist.errors import Terminated, UserError
from pykaldist.options import add_options, from_args, numbers
from pykaldist.parallel.clusters.cluster import Cluster
from pykaldist.parallel.planning.dry_run import epoch_seconds
from pykaldist.parallel.strategies.base.registry import strategies, strategy_options
from pykaldist.report.simulate import Run, draw_epochs, read_run, render, render_epochs, times, write


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--strategies", default="ssgd,asgd,adpsgd", help="with commas between them, each with options of its own")
    parser.add_argument("--ngpus", default="1,4,16", help="numbers of workers")
    parser.add_argument("--clusters", default="v100-ethernet", help="cluster files, or names of known ones")
    parser.add_argument("--accuracies", default="", help="held-out frame accuracies, in %%, the time to which is wanted")
    parser.add_argument("--train-options", default="", help="of `pykaldist train`, for all runs")
    parser.add_argument("--plot", type=Path, help="without a store: PNG to draw the speed-ups into")
    add_json(parser)
    parser.add_argument("store", type=Path, nargs="?", help="folder with the frame stores train and dev")
    parser.add_argument("folder", type=Path, nargs="?", help="folder to write")


def run(args: argparse.Namespace) -> None:
    accuracies = [value / 100 for value in numbers("accuracies", args.accuracies)] if args.accuracies else []
    if not all(re.fullmatch(r"[1-9]\d*", field) for field in args.ngpus.split(",")):
        raise UserError(f"--ngpus {args.ngpus}: expected numbers of workers with commas between them, such as 1,4,16.")
    chosen = [strategy.strip() for strategy in args.strategies.split(",")]
    if args.store is None:
        _predict(args, chosen)
        return
    if args.folder is None:
        raise UserError(f"{args.store} is given and no folder to write; give both, or neither to train nothing.")
    if args.plot is not None:
        raise UserError(f"--plot {args.plot} is for predictions without a store; with one, curves.png in {args.folder} is drawn.")
    combinations = [(cluster, strategy, n) for cluster in args.clusters.split(",") for n in sorted(map(int, args.ngpus.split(",")))
                    for strategy in (chosen if n > 1 else ["local"])]
    runs: list[Run] = []
    for number, (cluster, strategy, ngpu) in enumerate(combinations, 1):
        exp = args.folder / re.sub(r"[^\w.]+", "-", f"{Path(cluster).stem} {strategy} {ngpu}")
        said = f"{number} of {len(combinations)}: {strategy}, {ngpu} workers on {cluster}, in {exp}"
        print(said, flush=True, file=sys.stderr if args.json else sys.stdout)
        exp.mkdir(parents=True, exist_ok=True)
        words = ["--strategy", *shlex.split(strategy), "--ngpu", str(ngpu), "--cluster", cluster, *shlex.split(args.train_options)]
        with open(exp / "train.log", "w", encoding="utf-8") as log, contextlib.redirect_stdout(log):
            status = cli.main(["train", *words, str(args.store), str(exp)])
        if status == 128 + signal.SIGTERM:
            raise Terminated
        if status == 128 + signal.SIGINT:
            raise KeyboardInterrupt
        found = read_run(Path(cluster).stem, strategy, ngpu, exp)
        runs.append(found if status == 0 else Run(found.cluster, strategy, ngpu, []))
    if not any(run.lines for run in runs):
        raise UserError("no run ended well; what went wrong stands above.")
    write(runs, accuracies, args.folder)
    if args.json:
        print_json(times(runs, accuracies))
        return
    print(render(runs, accuracies))
    print(f"in {args.folder}: curves.csv, times.csv, curves.png; all times are simulated")


def _predict(args: argparse.Namespace, chosen: list[str]) -> None:
    """Print the predicted time of an epoch, with nothing trained."""
    for name in ("accuracies", "train_options"):
        if getattr(args, name):
            raise UserError(f"--{name.replace('_', '-')} {getattr(args, name)}: nothing is trained without a store; give one and a folder.")
    given = {strategy: parse_strategy(strategy) for strategy in chosen}
    epochs: dict[tuple[str, str, int], float] = {}
    for file in args.clusters.split(","):
        cluster = Cluster.read(file)
        epochs[cluster.name, "local", 1] = epoch_seconds(cluster, 1, "local")
        for ngpu in sorted(set(map(int, args.ngpus.split(","))) - {1}):
            for strategy, (name, options) in given.items():
                epochs[cluster.name, strategy, ngpu] = epoch_seconds(cluster, ngpu, name, options)
    if args.plot is not None:
        draw_epochs(epochs, args.plot)
    if args.json:
        print_json([{"cluster": cluster, "strategy": strategy, "ngpu": ngpu, "epoch": seconds}
                    for (cluster, strategy, ngpu), seconds in epochs.items()])
        return
    print(render_epochs(epochs))
    if args.plot is not None:
        print(f"plot in {args.plot}; all times are simulated")


def parse_strategy(strategy: str) -> tuple[str, object]:
    """Read a strategy's name and its options from text such as `adpsgd --pattern ring`."""
    name, *words = shlex.split(strategy) or [""]
    if name not in strategies():
        raise UserError(f"--strategies {strategy}: there is no strategy {name!r}; choose among {', '.join(strategies())}.")
    parser = cli._Parser(prog=f"pykaldist simulate --strategies {name}", allow_abbrev=False)
    add_options(parser, strategy_options(name))
    return name, from_args(strategy_options(name), parser.parse_args(words))
