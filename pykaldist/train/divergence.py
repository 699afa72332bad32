"""Divergence: how training that is lost is told from training that is slow, and what is done then.

What losses are held against. P is the held-out loss of the priors alone: outputs that know how often there is what, and look at no input.
    xent   logarithms of the training priors: the cross-entropy of the priors with the held-out targets
    mse    the mean target
    ctc    the labels' shares of the frames, each label having one frame to itself and blank all others
    RBMs   every visible unit at its mean: their variance, over the reconstruction's error
B is the best held-out loss so far: that before training (after a serial epoch, say), then that of each epoch's accepted model.

Bounds. Training has diverged where
    a training loss        is above max(1.5 B, (B + P) / 2)
    a held-out loss        at an epoch's end is above max(1.1 P, B)
or either is no number. A training loss is the mean over what a worker has trained on since it was looked at last, every
`LOSS_CHECK_INTERVAL` minibatches and at the epoch's end, where that is `LEAST_FRAMES` frames or more; and the mean of all workers over an
epoch. Nothing more is read from a device than there was for the progress bar.

Why these. Random weights begin at P or somewhat above, so that B is P or more, and a first epoch may go half as high again before it is
given up: with large rates, the first few minibatches do overshoot (they are a part of the first look's mean). A network that waits on a
plateau gives the priors, B = P, and is 10 % away from the bound on held-out data, 50 % from that on training data. Where something has been
learnt, B is below P, and the bound on training data is where half of that is lost again; dropout raises training losses above held-out
ones, but not so far, and for B near P it is 1.5 B that counts, which noise does not reach. Held-out losses are held against P, as a
network that overfits loses on them without diverging; while they are above it, in a small corpus or at the small rates of a warm-up, it is
enough that they fall. A schedule that rejects epochs (newbob) does so below these bounds,
and is not asked above them: a diverged epoch counts as none.

What is done. All workers of the job stop at their next safe point, and either the run ends with a sentence (`stop`), or (`back-off`) the
epoch begins anew from the model accepted last, with the rate times `back_off_factor` from then on, `back_off_tries` times in a run at most.
Optimisers and strategies begin with nothing in memory. It is the epoch's beginning, rather than a checkpoint within it, because the times
of those depend on the machine, and a run is to be the same whenever it is made.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from pykaldist.errors import UserError
from pykaldist.options import option
from pykaldist.parallel.fabric.processes import Processes
from pykaldist.parallel.fabric.worker import Worker

TRAIN_OVER_BEST, HELD_OUT_OVER_PRIORS = 1.5, 1.1
LEAST_FRAMES = 2000  # whose mean loss is taken for more than noise
TRAIN, EPOCH, HELD_OUT = range(3)  # what loss was too high: of a worker lately, of all over the epoch, on held-out data


@dataclass
class DivergenceOptions:
    """Divergence."""

    on_divergence: str = option("back-off", "where training diverges: end the run (stop), or begin the epoch again from the last accepted "
                                            "model with a lower rate (back-off)", ("stop", "back-off"))
    back_off_factor: float = option(0.5, "factor on the rate, each time")
    back_off_tries: int = option(4, "times in a run after which it is ended all the same")

    def __post_init__(self) -> None:
        if not 0.0 < self.back_off_factor < 1.0:
            raise UserError(f"--back-off-factor {self.back_off_factor:g} is outside (0, 1).")
        if self.back_off_tries < 1:
            raise UserError(f"--back-off-tries {self.back_off_tries}: expected at least one; without any, use --on-divergence stop.")


@dataclass(frozen=True)
class Bounds:
    """On losses, from those of the priors alone (P) and the best so far (B)."""

    priors: float
    best: float

    def bound(self, kind: int) -> float:
        if kind == HELD_OUT:
            return max(HELD_OUT_OVER_PRIORS * self.priors, self.best)
        return max(TRAIN_OVER_BEST * self.best, 0.5 * (self.best + self.priors))

    def exceeded(self, kind: int, loss: float) -> bool:
        return not math.isfinite(loss) or loss > self.bound(kind)

    def described(self, kind: int, loss: float) -> str:
        """How a loss exceeds its bound."""
        if not math.isfinite(loss):
            return f"became {loss}"
        if kind == HELD_OUT:
            before = f", and above the one before, {self.best:.3g}" * (self.best > HELD_OUT_OVER_PRIORS * self.priors)
            return f"is {loss:.3g}, more than {HELD_OUT_OVER_PRIORS:g} times that of the priors alone, {self.priors:.3g}{before}"
        if TRAIN_OVER_BEST * self.best >= 0.5 * (self.best + self.priors):
            return f"is {loss:.3g}, more than {TRAIN_OVER_BEST:g} times the best held-out loss before, {self.best:.3g}"
        return (f"is {loss:.3g}, nearer to that of the priors alone on held-out data, {self.priors:.3g}, than to the best there before, "
                f"{self.best:.3g}")


@dataclass(frozen=True)
class Finding:
    """A loss that is too high: of worker `rank`, or of all (-1), near update number `updates`; it is the mean of so many `frames`."""

    kind: int
    loss: float
    updates: int
    frames: int
    rank: int = -1

    def numbers(self) -> list[float]:
        return [self.kind, self.loss, self.updates, self.frames, self.rank]

    @classmethod
    def of(cls, numbers: list[float]) -> Finding:
        kind, loss, updates, frames, rank = numbers
        return cls(int(kind), loss, int(updates), int(frames), int(rank))


class Diverged(Exception):
    """The epoch under way is lost."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding)
        self.finding = finding


class Detector:
    """Of a process's workers. `tries` counts the times that the run has gone back; `backed_off` has those of the epoch at hand."""

    def __init__(self) -> None:
        self.bounds = Bounds(math.inf, math.inf)
        self.tries = 0
        self.backed_off: list[dict[str, Any]] = []
        self.found: dict[int, Finding] = {}  # by worker
        self._seen: dict[int, tuple[int, list[float]]] = {}  # frames and totals of the epoch at a worker's last look

    def start(self, priors: float, held_out: float) -> None:
        """The losses before the first epoch."""
        self.bounds = Bounds(priors, held_out)

    def accept(self, held_out: float) -> None:
        """An epoch's model has been accepted."""
        self.bounds = Bounds(self.bounds.priors, min(self.bounds.best, held_out))

    def forget_epoch(self) -> None:
        """It is over, or begins again."""
        self.found.clear()
        self._seen.clear()

    def look(self, rank: int, worker: Worker, totals: list[float]) -> None:
        """Judge what a worker has done since the last time; `totals` are those of the epoch."""
        frames, before = self._seen.get(rank, (0, [0.0] * len(totals)))
        loss = worker.learner.metrics([now - then for now, then in zip(totals, before, strict=True)])["loss"]
        frames = worker.frames - frames
        if frames < LEAST_FRAMES and math.isfinite(loss):
            return
        self._seen[rank] = worker.frames, totals
        if rank not in self.found and self.bounds.exceeded(TRAIN, loss):
            self.found[rank] = Finding(TRAIN, loss, worker.updates, frames, rank)

    def check(self, kind: int, loss: float, updates: int, frames: int) -> None:
        """Raise Diverged for a loss of all workers that is too high."""
        if self.bounds.exceeded(kind, loss):
            raise Diverged(Finding(kind, loss, updates, frames))

    def agree(self, processes: Processes) -> None:
        """Raise Diverged in every process of a job where one has found something: of the first worker that has."""
        own = [number for rank in sorted(self.found) for number in self.found[rank].numbers()]
        everything = torch.cat(processes.gather(torch.tensor(own, dtype=torch.float64))).tolist()
        if everything:
            width = len(Finding(TRAIN, 0.0, 0, 0).numbers())
            raise Diverged(min((Finding.of(everything[i : i + width]) for i in range(0, len(everything), width)), key=lambda f: f.rank))

    def described(self, finding: Finding, epoch: int, workers: int) -> str:
        """A finding in words; epochs from 0."""
        of = {TRAIN: f"over the last {finding.frames:,} frames{f' of worker {finding.rank}' * (workers > 1)}, the training loss",
              EPOCH: "over the epoch, the training loss", HELD_OUT: "at its end, the cross-validation loss"}[finding.kind]
        return (f"training diverged in epoch {epoch + 1}, near update {finding.updates}: {of} "
                f"{self.bounds.described(finding.kind, finding.loss)}")

    def state_dict(self) -> dict[str, Any]:
        """Of the run."""
        return {"priors": self.bounds.priors, "best": self.bounds.best, "tries": self.tries, "backed_off": self.backed_off}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.bounds, self.tries, self.backed_off = Bounds(state["priors"], state["best"]), state["tries"], list(state["backed_off"])

    def worker_state(self, rank: int) -> dict[str, Any]:
        """Of a worker here."""
        frames, totals = self._seen.get(rank, (0, []))
        return {"frames": frames, "totals": totals, "found": self.found[rank].numbers() if rank in self.found else []}

    def load_worker_state(self, rank: int, state: dict[str, Any]) -> None:
        if state["totals"]:
            self._seen[rank] = state["frames"], list(state["totals"])
        if state["found"]:
            self.found[rank] = Finding.of(state["found"])


def remedy(rate_option: str, rate: float, factor: float, others: Iterable[str]) -> str:
    """What a user can change: the rate, with what N workers make of it, or what else a strategy has."""
    was = f"{rate:g}" + f", times {factor:g} for the workers (--lr-scale)" * (factor != 1.0)
    *first, last = [f"lower {rate_option} (was {was})", *others]
    return f"{', '.join(first)} or {last}" if first else last
