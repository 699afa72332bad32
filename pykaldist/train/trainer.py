"""The trainer: epochs, schedule, cross-validation, history, checkpoints, resume.

    for each epoch:  strategy.epoch(worker, fabric);  cross-validate;  the schedule accepts or rejects;  a line of history.jsonl

A checkpoint holds the worker (parameters, optimiser, place in the epoch), strategy, schedule, the last accepted parameters and the
history so far, so that a resumed run writes what an uninterrupted one would have written: train(2k) = train(k) + resume(k), bit for bit
on one device type.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pykaldist.errors import UserError
from pykaldist.frames.sampler import Sampler
from pykaldist.io.atomic import write_text
from pykaldist.optim.schedules import Schedule
from pykaldist.options import option
from pykaldist.parallel.fabric import Fabric
from pykaldist.parallel.strategy import Strategy
from pykaldist.parallel.worker import Worker
from pykaldist.progress import Progress
from pykaldist.train.checkpoints import Checkpoints
from pykaldist.train.evaluate import evaluate

LOSS_CHECK_INTERVAL = 50  # minibatches between looks at the loss, each of which waits for the device


@dataclass
class TrainerOptions:
    """Checkpoints."""

    checkpoint_minutes: float = option(5.0, "minutes between checkpoints within an epoch")
    keep_checkpoints: int = option(2, "checkpoints kept")

    def __post_init__(self) -> None:
        if self.checkpoint_minutes < 0 or self.keep_checkpoints < 1:
            raise UserError(f"--checkpoint-minutes {self.checkpoint_minutes:g} --keep-checkpoints {self.keep_checkpoints}: expected no "
                            "less than 0 minutes and 1 checkpoint.")


def described(metrics: dict[str, float]) -> str:
    """Metrics in words: accuracies in per cent."""
    return ", ".join(f"frame accuracy {100 * value:.2f} %" if name == "acc" else f"{name.replace('_', ' ')} {value:.4f}"
                     for name, value in metrics.items())


class Trainer:
    """Trains `worker` in folder `exp`; `run` resumes from the newest checkpoint there."""

    def __init__(self, worker: Worker, strategy: Strategy, fabric: Fabric, schedule: Schedule, cv: Sampler, exp: Path,
                 options: TrainerOptions, log: Callable[[str], None] = print) -> None:
        self.worker, self.strategy, self.fabric, self.schedule, self.cv = worker, strategy, fabric, schedule, cv
        self.exp, self.options, self.log = exp, options, log
        self.checkpoints = Checkpoints(exp / "ckpt", options.keep_checkpoints)
        self.epoch = 0
        self.history: list[dict[str, Any]] = []
        self.accepted = worker.params.clone()
        self.seconds_before = 0.0  # spent on this epoch before it was resumed
        self._epoch_start = self._last_checkpoint = time.perf_counter()
        self._bar: Progress | None = None

    def run(self) -> None:
        """Train to the schedule's end, from the newest checkpoint if there is one; leaves the last accepted model in the worker."""
        state = self.checkpoints.latest()
        if state is not None:
            self.load_state_dict(state)
            self.log(f"resuming at epoch {self.epoch + 1}, update {self.worker.updates}")
        else:
            cv = evaluate(self.worker.learner, self.cv)
            self.schedule.start(cv)
            self.log(f"before training: cv {described(cv)}")
        self._write_history()
        self.worker.on_step = self._on_step
        while not self.schedule.finished(self.epoch):
            self._train_epoch()
        if not any(line["accepted"] for line in self.history):
            raise UserError(f"no epoch made the cross-validation loss fall (it was {self.history[-1]['cv_loss']:.3g} at the end); lower "
                            f"{self.worker.learner.rate_option} (was {self.history[0]['learn_rate']:g}).")
        self.worker.params.copy_(self.accepted)

    def _train_epoch(self) -> None:
        worker, schedule, epoch = self.worker, self.schedule, self.epoch
        worker.begin_epoch(epoch, schedule.learn_rate(epoch),
                           (lambda fraction: schedule.learn_rate(epoch, fraction)) if schedule.moves_within(epoch) else None)
        self._epoch_start = time.perf_counter()
        self.fabric.compute_seconds = 0.0
        self._frames_before = worker.frames  # of this epoch, when it was resumed within
        with Progress(f"epoch {self.epoch + 1}", worker.sampler.frames, "frames") as self._bar:
            self._bar.update(worker.frames)
            self.fabric.run(self.strategy.epoch(worker, self.fabric))
        train = worker.learner.metrics(worker.totals.tolist())
        self._check_loss(train["loss"])
        cv = evaluate(worker.learner, self.cv)
        rate = schedule.learn_rate(epoch, 1.0 - 1.0 / worker.sampler.minibatches)  # of the last minibatch
        accepted = schedule.end_epoch(epoch, cv)
        if accepted:
            self.accepted.copy_(worker.params)
        else:
            worker.params.copy_(self.accepted)
        total = time.perf_counter() - self._epoch_start
        frames = worker.frames - self._frames_before
        compute, load = self.fabric.compute_seconds, worker.load_seconds
        self.history.append({
            "epoch": self.epoch + 1, "updates": worker.updates, "frames": worker.frames, "learn_rate": rate,
            **{f"train_{name}": value for name, value in train.items()}, **{f"cv_{name}": value for name, value in cv.items()},
            "accepted": accepted,
            "seconds": {"compute": compute, "exchange": 0.0, "wait": 0.0, "load": load, "total": total + self.seconds_before},
            "time": self.fabric.time, "disagreement": 0.0})
        self._write_history()
        verdict = "" if accepted else " (rejected)"
        self.log(f"epoch {self.epoch + 1}: rate {rate:.3g}, {worker.frames} frames, {described(train)}; cv {described(cv)}{verdict}; "
                 f"{total:.1f} s measured, "
                 f"{frames / total:.0f} frames/s, computing {100 * compute / total:.0f} %, loading {100 * load / total:.0f} %")
        self.epoch += 1
        self.seconds_before = 0.0
        self._save()

    def _on_step(self) -> None:
        worker = self.worker
        if worker.index % LOSS_CHECK_INTERVAL == 0:
            loss = worker.learner.metrics(worker.totals.tolist())["loss"]
            self._check_loss(loss)
            assert self._bar is not None
            self._bar.update(worker.frames - self._bar.count, f"loss {loss:.3f}")
        if time.perf_counter() - self._last_checkpoint > 60.0 * self.options.checkpoint_minutes:
            self._save(self.seconds_before + time.perf_counter() - self._epoch_start)

    def _check_loss(self, loss: float) -> None:
        if loss != loss or loss == float("inf"):
            raise UserError(f"the training loss became {loss} in epoch {self.epoch + 1}, near update {self.worker.updates}; "
                            f"lower {self.worker.learner.rate_option} (was {self.worker.learn_rate:g}).")

    def _save(self, seconds: float = 0.0) -> None:
        self.checkpoints.save(self.worker.updates, self.state_dict(seconds))
        self._last_checkpoint = time.perf_counter()

    def _write_history(self) -> None:
        write_text(self.exp / "history.jsonl", "".join(json.dumps(line) + "\n" for line in self.history))

    def state_dict(self, seconds: float = 0.0) -> dict[str, Any]:
        return {"epoch": self.epoch, "history": json.dumps(self.history), "accepted": self.accepted.cpu(), "seconds": seconds,
                "worker": self.worker.state_dict(), "strategy": self.strategy.state_dict(), "schedule": self.schedule.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.epoch, self.history, self.seconds_before = state["epoch"], json.loads(state["history"]), state["seconds"]
        self.accepted.copy_(state["accepted"])
        self.worker.load_state_dict(state["worker"])
        self.strategy.load_state_dict(state["strategy"])
        self.schedule.load_state_dict(state["schedule"])
