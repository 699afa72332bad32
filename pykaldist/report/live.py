"""A training that runs, seen from outside: what its workers do, how fast it is, and when it will be done.

`Onlooker.look` reads what the processes of a training leave in its folder, and touches nothing: `history.jsonl`, a line an epoch, and the
records in `.ranks`, which each of them writes about once a second (`pykaldist/parallel/launch/records.py`). So it works from any machine
that sees the folder, and a training is no slower when somebody looks.

The speed is that between the first look at an epoch and the last one, by the clock of the first process. What is left of the run is what is
left of this epoch at that speed, and as much for each epoch that may follow as a whole one takes. A schedule that ends by itself may end
earlier.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pykaldist.errors import UserError
from pykaldist.parallel.launch.records import WAITING, read_records
from pykaldist.parallel.launch.supervisor import FOLDER
from pykaldist.train.config import read_config
from pykaldist.train.history import read_history

RUNNING, ENDED, STOPPED = "running", "ended", "stopped"
SILENT_AFTER_S = 10.0  # a process that has not written its record for so long gives no sign of life
CLEAR = "\x1b[H\x1b[J"  # of a terminal, before the next view
RESULTS = ("final.pt", "final.mdl", "dbn.pt")  # what a training leaves at its end: a network, a chain model, a stack of RBMs


@dataclass
class WorkerView:
    """A worker: where it is, what its process does, and how far it is in the epoch; `loss` a frame of the epoch so far."""

    rank: int
    process: int
    host: str
    pid: int
    does: str
    minibatches: int | None = None
    of: int | None = None
    loss: float | None = None


@dataclass
class View:
    """A training at a moment. Unknown values are None.

    `state` is running, ended or stopped; `fraction` is what is done of epoch `epoch` of at most `epochs`; `seconds` is how the time of this
    epoch is split (compute, exchange, wait, load), as a mean over processes; `elapsed` are seconds of this epoch, `time` says whether both
    are measured or simulated; `seconds_left` are real ones, until the last epoch that there may be; `history` holds the lines of
    `history.jsonl`.
    """

    exp: str
    state: str
    title: str
    epoch: int | None = None
    epochs: int | None = None
    fraction: float | None = None
    frames_per_second: float | None = None
    seconds_left: float | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    elapsed: float | None = None
    time: str = "measured"
    workers: list[WorkerView] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list)


def title(exp: Path) -> str:
    """What is trained, in a few words; empty where config.json is not there."""
    if not (exp / "config.json").is_file():
        return ""
    config = read_config(exp)
    options, many = config.options, config.ngpu > 1
    words = [str(options[name]) for name in ("nnet", "objective", "optimizer") if options.get(name)]
    if many:
        period = options.get("average_period")
        words.append(f"{options.get('strategy')} of {config.ngpu} workers" + f", period {period}" * bool(period))
    return ", ".join([*words, config.device])


class Onlooker:
    """Looks at the training in folder `exp`. `clock` gives seconds; `age` those since a file was written."""

    def __init__(self, exp: Path, clock: Callable[[], float] = time.monotonic,
                 age: Callable[[Path], float] = lambda path: time.time() - path.stat().st_mtime) -> None:
        self.exp, self.clock, self.age = exp, clock, age
        self._beats: dict[int, tuple[int, float]] = {}  # process -> its last beat, and when this was seen first
        self._begin: tuple[int, float, int] | None = None  # epoch, time and frames of the first look at an epoch

    def look(self) -> View:
        """Look once. Raises UserError where there is no training in the folder, or a file of it is damaged."""
        records, history = self._living(), read_history(self.exp)
        if not records and not history and not (self.exp / "config.json").is_file():
            raise UserError(f"{self.exp} holds no training (no history.jsonl, no config.json, nobody who trains); name the folder that "
                            "steps/nnet/train.sh writes.")
        ended = any((self.exp / name).exists() for name in RESULTS)
        view = View(str(self.exp), RUNNING if any(alive for _, alive in records.values()) else ENDED if ended else STOPPED, title(self.exp),
                    history=history)
        for process, (record, alive) in sorted(records.items()):
            self._add_process(view, process, record, alive)
        told = [record["training"] for record, alive in records.values() if alive and record["training"]]
        if told and view.state == RUNNING:
            self._add_progress(view, told)
        return view

    def _living(self) -> dict[int, tuple[dict[str, Any], bool]]:
        """The processes' records, and whether each gives signs of life."""
        now, found = self.clock(), {}
        for process, record in read_records(self.exp / FOLDER).items():
            beat, since = self._beats.get(process, (-1, now))
            if beat != record["beat"]:
                first = process not in self._beats
                since = now - (self._age(process) if first else 0.0)
                self._beats[process] = record["beat"], since
            found[process] = record, now - since < SILENT_AFTER_S
        return found

    def _age(self, process: int) -> float:
        try:
            return self.age(self.exp / FOLDER / str(process))
        except OSError:
            return 0.0

    def _add_process(self, view: View, process: int, record: dict[str, Any], alive: bool) -> None:
        """Add the workers of a process to the view; without numbers where it is not in an epoch."""
        does = ("waiting" if record["state"] == WAITING else "computing") if alive else "no sign of life"
        where, told = (record["host"], record["pid"]), record["training"]
        if told is None:
            view.workers.append(WorkerView(process, process, *where, "starting" if alive else does))
            return
        rows = zip(told["minibatches"], told["of"], told["losses"], strict=True)
        view.workers += [WorkerView(told["first"] + i, process, *where, does, *row) for i, row in enumerate(rows)]

    def _add_progress(self, view: View, told: list[dict[str, Any]]) -> None:
        """Add how far the training is, how fast, and how its time is split."""
        view.epoch, view.epochs = max(one["epoch"] for one in told), max(one["epochs"] for one in told)
        here = [one for one in told if one["epoch"] == view.epoch]
        done, of = (sum(sum(one[name]) for one in here) for name in ("minibatches", "of"))
        view.fraction = done / of if of else None
        view.elapsed, view.time = max(one["elapsed"] for one in here), here[0]["time"]
        names = here[0]["seconds"]
        view.seconds = {name: sum(one["seconds"][name] for one in here) / len(here) for name in names}
        frames, now = sum(one["frames"] for one in here), here[0]["at"]
        if self._begin is None or self._begin[0] != view.epoch or self._begin[2] > frames:
            self._begin = view.epoch, now, frames
        _, since, before = self._begin
        if now > since and frames > before and done:
            view.frames_per_second = (frames - before) / (now - since)
            epoch_frames = frames * of / done
            rest = epoch_frames * (1.0 + view.epochs - view.epoch) - frames
            view.seconds_left = rest / view.frames_per_second


SPARKS = "▁▂▃▄▅▆▇█"
BAR = 24  # columns of a bar


def sparkline(values: list[float]) -> str:
    """Numbers as a row of little bars, the lowest one at the least and the highest at the largest."""
    low, high = min(values), max(values)
    step = (high - low) / (len(SPARKS) - 1) or 1.0
    return "".join(SPARKS[round((value - low) / step)] for value in values)


def bar(fraction: float, columns: int = BAR) -> str:
    """A fraction as a bar."""
    full = round(max(0.0, min(1.0, fraction)) * columns)
    return "█" * full + "░" * (columns - full)


def duration(seconds: float) -> str:
    """Seconds as people say them, such as `3 min 20 s` or `2 h 5 min`."""
    seconds = round(seconds)
    hours, minutes = seconds // 3600, seconds // 60 % 60
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds % 60} s" if minutes else f"{seconds} s"


def render_view(view: View, columns: int = 100, rows: int = 40) -> str:
    """The view as lines for a terminal of this size; workers that do not fit are counted."""
    lines = [f"{view.exp}: {view.state}" + f"; {view.title}" * bool(view.title)]
    if view.epoch is not None and view.fraction is not None:
        speed = f", {view.frames_per_second:,.0f} frames/s" if view.frames_per_second else ""
        left = f", {duration(view.seconds_left)} left at most" if view.seconds_left is not None else ""
        lines.append(f"epoch {view.epoch} of {view.epochs}  {bar(view.fraction)} {100 * view.fraction:3.0f} %{speed}{left}")
    total = sum(view.seconds.values())
    if total:
        shares = ", ".join(f"{name} {100 * value / total:.0f} %" for name, value in view.seconds.items())
        lines.append(f"time of this epoch, {view.time}: {shares}")
    lines += _epochs(view.history, columns)
    lines += _workers(view.workers, rows - len(lines) - 2)
    return "\n".join(line[:columns] for line in lines)


def _epochs(history: list[dict[str, Any]], columns: int) -> list[str]:
    """The held-out loss and accuracy of the epochs that are over."""
    if not history:
        return []
    lines, last = [], history[-1]
    for name, word, factor, digits in (("train_loss", "training loss", 1.0, 4), ("cv_loss", "held-out loss", 1.0, 4),
                                       ("cv_acc", "held-out frame accuracy, %", 100.0, 2), ("disagreement", "disagreement", 1.0, 4)):
        values = [factor * line[name] for line in history if line.get(name) is not None]
        if values and (name != "disagreement" or any(values)):
            lines.append(f"{word:28s} {sparkline(values[-(columns - 45):])} {values[-1]:.{digits}f}")
    lines.append(f"{'epochs that are over':28s} {len(history)}, the last one {last['seconds']['total']:.1f} s {last['time']}, rate "
                 f"{last['learn_rate']:.3g}{'' if last['accepted'] else ', rejected'}")
    return lines


def _workers(workers: list[WorkerView], rows: int) -> list[str]:
    if not workers:
        return []
    wide = max(len(worker.host) for worker in workers) + 8
    lines = [f"worker  {'process on':{wide}s}  {'does':15s}  minibatches{' ' * (BAR + 1)}  loss"]
    shown = workers if len(workers) < rows else workers[: max(rows - 2, 1)]
    for worker in shown:
        where = f"{worker.process} {worker.host}"
        done = ""
        if worker.of:
            assert worker.minibatches is not None
            done = f"{bar(worker.minibatches / worker.of)} {worker.minibatches}/{worker.of}"
        loss = "" if worker.loss is None else f"{worker.loss:.4f}"
        lines.append(f"{worker.rank:6d}  {where:{wide}s}  {worker.does:15s}  {done:{BAR + 12}s}  {loss}".rstrip())
    if len(shown) < len(workers):
        lines.append(f"... and {len(workers) - len(shown)} more workers")
    return lines
