"""Reports of simulated runs: learning curves, time to an accuracy and speed-up, as text, CSV and a picture."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pykaldist.errors import UserError
from pykaldist.io.atomic import write_text
from pykaldist.report.figures import pyplot, save
from pykaldist.report.plan import duration
from pykaldist.report.text import markdown
from pykaldist.train.history import FILE, read_history

CURVES, TIMES, PICTURE = "curves.csv", "times.csv", "curves.png"
POINTS = ("epoch", "seconds", "train_loss", "cv_loss", "cv_acc", "disagreement")


@dataclass
class Run:
    """A simulated run: `strategy` as it was asked for, its options included; `lines` of its history.jsonl, none where it failed."""

    cluster: str
    strategy: str
    ngpu: int
    lines: list[dict[str, Any]]

    @property
    def seconds(self) -> list[float]:
        """The simulated seconds at each epoch's end."""
        ends, now = [], 0.0
        for line in self.lines:
            now += line["seconds"]["total"]
            ends.append(now)
        return ends

    def time_to(self, accuracy: float) -> float | None:
        """The seconds until the held-out frame accuracy, in [0, 1], was reached; None where it was not.

        Between two epochs' ends it is taken in proportion.
        """
        before, then = 0.0, 0.0
        for line, now in zip(self.lines, self.seconds, strict=True):
            if line["cv_acc"] >= accuracy:
                return now if then == 0.0 else then + (now - then) * (accuracy - before) / (line["cv_acc"] - before)
            before, then = max(before, line["cv_acc"]), now
        return None


def read_run(cluster: str, strategy: str, ngpu: int, exp: Path) -> Run:
    """Read a run from its folder; raises UserError where its times are not simulated, or it has no frame accuracy."""
    path, lines = exp / FILE, read_history(exp)
    if any(line["time"] != "simulated" for line in lines):
        raise UserError(f"{path} has times that were measured, not simulated; train with --cluster.")
    if any("cv_acc" not in line for line in lines):
        raise UserError(f"{path} has no frame accuracy; simulate with an objective that has one.")
    return Run(cluster, strategy, ngpu, lines)


def times(runs: Sequence[Run], accuracies: Sequence[float]) -> list[dict[str, Any]]:
    """The times of each run: seconds an epoch and to each accuracy, and its speed-up over the cluster's one worker in both.

    None stands where a time is unknown.
    """
    alone = {run.cluster: run for run in runs if run.ngpu == 1 and run.lines}
    rows = []
    for run in runs:
        one = alone.get(run.cluster)
        epoch = run.seconds[-1] / len(run.lines) if run.lines else None
        row = {"cluster": run.cluster, "strategy": run.strategy, "ngpu": run.ngpu, "epoch": epoch,
               "speed_up": one.seconds[-1] / len(one.lines) / epoch if one and epoch else None,
               "best_acc": max((line["cv_acc"] for line in run.lines), default=None)}
        for accuracy in accuracies:
            found, ones = run.time_to(accuracy), one.time_to(accuracy) if one else None
            row[f"to_{accuracy:g}"] = found
            row[f"speed_up_to_{accuracy:g}"] = ones / found if found and ones else None
        rows.append(row)
    return rows


def render(runs: Sequence[Run], accuracies: Sequence[float]) -> str:
    """Write the times as text (and valid Markdown), efficiencies (speed-up a worker) in brackets."""
    heads = ["cluster", "strategy", "ngpu", "an epoch", "speed-up", "best frame acc. %", *(f"to {100 * a:g} %" for a in accuracies)]

    def to(row: dict[str, Any], accuracy: float) -> str:
        found, gain = row[f"to_{accuracy:g}"], row[f"speed_up_to_{accuracy:g}"]
        return "-" if found is None else duration(found) + (f" ({100 * gain / row['ngpu']:.0f} %)" if gain else "")

    table = [heads]
    for row in times(runs, accuracies):
        if row["epoch"] is None:
            table.append([row["cluster"], row["strategy"], str(row["ngpu"]), "failed", *[""] * (len(heads) - 4)])
            continue
        table.append([row["cluster"], row["strategy"], str(row["ngpu"]), duration(row["epoch"]),
                      f"{row['speed_up']:.2f}" if row["speed_up"] else "", f"{100 * row['best_acc']:.2f}",
                      *(to(row, a) for a in accuracies)])
    return markdown(table)


def render_epochs(epochs: dict[tuple[str, str, int], float]) -> str:
    """Write (cluster, strategy, N) -> simulated seconds of an epoch as text likewise; speed-ups are over (cluster, local, 1)."""
    table = [["cluster", "strategy", "ngpu", "an epoch", "speed-up", "per worker"]]
    for (cluster, strategy, ngpu), seconds in epochs.items():
        gain = epochs[cluster, "local", 1] / seconds
        table.append([cluster, strategy, str(ngpu), duration(seconds), f"{gain:.2f}", f"{gain / ngpu:.2f}"])
    return markdown(table)


def write(runs: Sequence[Run], accuracies: Sequence[float], folder: Path) -> None:
    """Write `curves.csv`, a line an epoch of each run; `times.csv`, a line a run; `curves.png`."""
    curves = [{"cluster": run.cluster, "strategy": run.strategy, "ngpu": run.ngpu,
               **{name: line[name] for name in POINTS if name != "seconds"}, "seconds": now}
              for run in runs for line, now in zip(run.lines, run.seconds, strict=True)]
    _write_csv(folder / CURVES, ["cluster", "strategy", "ngpu", *POINTS], curves)
    rows = times(runs, accuracies)
    _write_csv(folder / TIMES, list(rows[0]), rows)
    _draw(runs, rows, folder / PICTURE)


def _write_csv(path: Path, heads: list[str], rows: list[dict[str, Any]]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, heads, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())


def draw_epochs(epochs: dict[tuple[str, str, int], float], path: Path) -> None:
    """Draw a PNG of speed-up against N, a picture a cluster; `epochs` as in `render_epochs`. Raises UserError without matplotlib."""
    plt = pyplot(path)
    clusters = list(dict.fromkeys(cluster for cluster, _, _ in epochs))
    figure, axes = plt.subplots(1, len(clusters), figsize=(6.5 * len(clusters), 4.5), squeeze=False)
    for axis, cluster in zip(axes[0], clusters, strict=True):
        here = {(strategy, ngpu): epochs[cluster, "local", 1] / seconds for (name, strategy, ngpu), seconds in epochs.items()
                if name == cluster}
        names = list(dict.fromkeys(strategy for strategy, ngpu in here if ngpu > 1))
        _speed_ups(axis, cluster, {name: [(1, 1.0), *((n, gain) for (strategy, n), gain in here.items() if strategy == name and n > 1)]
                                   for name in names})
    save(plt, figure, path)


def _speed_ups(axis: Any, cluster: str, gains: dict[str, list[tuple[int, float]]]) -> None:
    """Draw each strategy's speed-ups (N, over one worker), beside N itself."""
    for strategy, points in gains.items():
        axis.plot(*zip(*points, strict=True), marker="o", label=strategy)
    most = max((n for points in gains.values() for n, _ in points), default=1)
    axis.plot([1, most], [1, most], color="grey", linestyle=":", label="N")
    _label(axis, cluster, "workers", "speed-up of an epoch, simulated")


def _label(axis: Any, title: str, below: str, beside: str) -> None:
    axis.set_title(title)
    axis.set_xlabel(below)
    axis.set_ylabel(beside)
    axis.legend(fontsize=7)


def _draw(runs: Sequence[Run], rows: list[dict[str, Any]], path: Path) -> None:
    """Draw held-out loss against epochs and against simulated hours, and speed-up against N; a row of pictures a cluster."""
    plt = pyplot(path)
    clusters = list(dict.fromkeys(run.cluster for run in runs))
    figure, axes = plt.subplots(len(clusters), 3, figsize=(16, 4.5 * len(clusters)), squeeze=False)
    for (epochs, hours, gains), cluster in zip(axes, clusters, strict=True):
        for run in (run for run in runs if run.cluster == cluster and run.lines):
            label = "one worker" if run.ngpu == 1 else f"{run.strategy}, {run.ngpu}"
            losses = [line["cv_loss"] for line in run.lines]
            epochs.plot([line["epoch"] for line in run.lines], losses, marker=".", label=label)
            hours.plot([now / 3600 for now in run.seconds], losses, marker=".", label=label)
        here = [row for row in rows if row["cluster"] == cluster and row["speed_up"]]
        points = [(row["strategy"], row["ngpu"], row["speed_up"]) for row in here]
        _speed_ups(gains, cluster, {name: sorted((n, gain) for strategy, n, gain in points if strategy == name or n == 1)
                                    for name in dict.fromkeys(strategy for strategy, n, _ in points if n > 1)})
        _label(epochs, cluster, "epochs", "held-out loss")
        _label(hours, cluster, "hours, simulated", "held-out loss")
        epochs.xaxis.get_major_locator().set_params(integer=True)
        hours.set_xscale("log")
    save(plt, figure, path)
