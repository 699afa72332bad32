"""Divergence: how a training that is lost is told from one that is slow, and what is then done.

Losses for comparison. P is the held-out loss of the priors alone: of outputs that know how often each target occurs, and use no input.
    xent   the logarithms of the training priors: their cross-entropy with the held-out targets
    mse    the mean target
    ctc    the labels' shares of the frames, where each label has one frame and blank all others
    smbr, mpe, mmi   the logarithms of the training priors: paths of a lattice have their graph costs alone
    RBMs   every visible unit at its mean: their variance, as a reconstruction error
B is the best held-out loss so far: first that before training (after a serial epoch, say), then that of each epoch's accepted model.
T is the lowest training loss over an accepted epoch, 0 before the first.

Bounds. Training has diverged where
    a training loss        is above max(1.5 M, (M + P) / 2), where M is the larger of B and T
    a held-out loss        at an epoch's end is above max(1.1 P, B)
or one of them is no number. The held-out loss of a network with batch normalisation has no bound in the first `LEAST_UPDATES` updates:
the statistics that it uses are means over all networks since the first, of which the last is not one. A training loss is the mean over
the frames that a worker has trained on since the last check. There is a check every `LOSS_CHECK_INTERVAL` minibatches and at the epoch's
end, if it has `LEAST_FRAMES` frames or more. The mean over all workers in an epoch is checked, too. Nothing is read from a device that
the progress bar does not need anyway. Training losses of objectives of lattices have no bound: a few utterances have most of the loss,
and a thin lattice is mostly right by its graph costs alone, so that means over thousands of frames lie between B and P without anything
being lost.

Why these bounds. Random weights begin at P or somewhat above it, so B is P or more, and the loss of a first epoch may be half as high again
before the epoch is given up. With large rates the first few minibatches do overshoot; they are part of the mean of the first check. A
network on a plateau outputs the priors, B = P. It is 10 % below the bound on held-out data, and 50 % below that on training data. When
something has been learnt, B is below P, and the bound on training data is where half of that is lost again. Dropout, augmentation and
frames that are harder than the held-out ones keep training losses above held-out ones for good: hence T. Held-out losses are compared with
P, because a network that overfits loses on them without diverging. While they are above P, in a small corpus or at the small rates of a
warm-up, it is enough that they fall. A schedule that rejects epochs (newbob) does so below these bounds. Above them it is not asked: a
diverged epoch does not count.

What is done. All workers of the job stop at their next safe point. Then the run ends with an error (`stop`), or (`back-off`) the epoch
begins again from the model accepted last, with the rate times `back_off_factor` from then on, at most `back_off_tries` times in a run.
Optimisers and strategies begin without memory. The run goes back to the beginning of the epoch and not to a checkpoint within it, because
the times of those depend on the machine, and a run has to be the same whenever it is made.
"""

from __future__ import annotations

import dataclasses
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
LEAST_FRAMES = 2000  # frames from which on a mean loss is more than noise
LEAST_UPDATES = 50  # updates from which on statistics of batch normalisation are not those of the first networks
TRAIN, EPOCH, HELD_OUT = range(3)  # which loss was too high: of a worker since the last check, of all in the epoch, on held-out data


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
    """The bounds on losses, computed from the loss of the priors alone (P) and the best losses so far, held-out (B) and in training (T)."""

    priors: float
    best: float
    train: float = 0.0

    @property
    def most(self) -> float:
        """What the bound on training losses is computed from: the larger of the best losses."""
        return max(self.best, self.train)

    def bound(self, kind: int) -> float:
        """The bound on a loss of this kind."""
        if kind == HELD_OUT:
            return max(HELD_OUT_OVER_PRIORS * self.priors, self.best)
        return max(TRAIN_OVER_BEST * self.most, 0.5 * (self.most + self.priors))

    def exceeded(self, kind: int, loss: float) -> bool:
        """True for a loss above its bound, or one that is no number."""
        return not math.isfinite(loss) or loss > self.bound(kind)

    def described(self, kind: int, loss: float) -> str:
        """How a loss exceeds its bound, in words."""
        if not math.isfinite(loss):
            return f"became {loss}"
        if kind == HELD_OUT:
            before = f", and above the one before, {self.best:.3g}" * (self.best > HELD_OUT_OVER_PRIORS * self.priors)
            return f"is {loss:.3g}, more than {HELD_OUT_OVER_PRIORS:g} times that of the priors alone, {self.priors:.3g}{before}"
        best = f"the best {'training' if self.train > self.best else 'held-out'} loss before, {self.most:.3g}"
        if TRAIN_OVER_BEST * self.most >= 0.5 * (self.most + self.priors):
            return f"is {loss:.3g}, more than {TRAIN_OVER_BEST:g} times {best}"
        return f"is {loss:.3g}, nearer to that of the priors alone on held-out data, {self.priors:.3g}, than to {best}"


@dataclass(frozen=True)
class Finding:
    """A loss that is too high: of worker `rank`, or of all workers (-1), near update number `updates`. It is a mean over `frames` frames.
    """

    kind: int
    loss: float
    updates: int
    frames: int
    rank: int = -1

    def numbers(self) -> list[float]:
        """The finding as numbers, for an exchange."""
        return [self.kind, self.loss, self.updates, self.frames, self.rank]

    @classmethod
    def of(cls, numbers: list[float]) -> Finding:
        """The finding that these numbers hold."""
        kind, loss, updates, frames, rank = numbers
        return cls(int(kind), loss, int(updates), int(frames), int(rank))


class Diverged(Exception):
    """Training has diverged in this epoch."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding)
        self.finding = finding


class Detector:
    """Finds divergence of a process's workers.

    `tries` counts how often the run has gone back; `backed_off` lists those times in this epoch. `steady`: a loss over `LEAST_FRAMES`
    frames says something; without it training losses only have to be numbers.
    """

    def __init__(self, steady: bool = True) -> None:
        self.steady = steady
        self.bounds = Bounds(math.inf, math.inf)
        self.tries = 0
        self.backed_off: list[dict[str, Any]] = []
        self.found: dict[int, Finding] = {}  # by worker
        self._seen: dict[int, tuple[int, list[float]]] = {}  # worker -> frames and totals of the epoch at its last check

    def start(self, priors: float, held_out: float) -> None:
        """Set the losses before the first epoch."""
        self.bounds = Bounds(priors, held_out)

    def accept(self, train: float, held_out: float) -> None:
        """Note the losses of an epoch whose model has been accepted."""
        before = self.bounds
        self.bounds = Bounds(before.priors, min(before.best, held_out), min(before.train or math.inf, train))

    def forget_epoch(self) -> None:
        """Forget the findings of an epoch that is over, or begins again."""
        self.found.clear()
        self._seen.clear()

    def forget_worker(self, rank: int) -> None:
        """Forget what was found of a worker that another one replaces."""
        self.found.pop(rank, None)
        self._seen.pop(rank, None)

    def look(self, rank: int, worker: Worker, totals: list[float]) -> None:
        """Check the training loss of a worker since its last check. `totals` are those of the epoch."""
        frames, before = self._seen.get(rank, (0, [0.0] * len(totals)))
        loss = worker.learner.metrics([now - then for now, then in zip(totals, before, strict=True)])["loss"]
        frames = worker.frames - frames
        if frames < LEAST_FRAMES and math.isfinite(loss):
            return
        self._seen[rank] = worker.frames, totals
        if rank not in self.found and self._exceeded(TRAIN, loss):
            self.found[rank] = Finding(TRAIN, loss, worker.updates, frames, rank)

    def check(self, kind: int, loss: float, updates: int, frames: int) -> None:
        """Raise Diverged for a loss of all workers that is too high."""
        if self._exceeded(kind, loss):
            raise Diverged(Finding(kind, loss, updates, frames))

    def check_held_out(self, loss: float, updates: int, frames: int, statistics: bool) -> None:
        """Raise Diverged for a held-out loss that is too high; `statistics`: the network has some of the data."""
        if not statistics or updates >= LEAST_UPDATES or not math.isfinite(loss):
            self.check(HELD_OUT, loss, updates, frames)

    def _exceeded(self, kind: int, loss: float) -> bool:
        return self.bounds.exceeded(kind, loss) if self.steady or kind == HELD_OUT else not math.isfinite(loss)

    def agree(self, processes: Processes) -> None:
        """Raise Diverged in every process of a job where one has found divergence: with the finding of the first worker."""
        own = [number for rank in sorted(self.found) for number in self.found[rank].numbers()]
        everything = torch.cat(processes.gather(torch.tensor(own, dtype=torch.float64))).tolist()
        if everything:
            width = len(Finding(TRAIN, 0.0, 0, 0).numbers())
            raise Diverged(min((Finding.of(everything[i : i + width]) for i in range(0, len(everything), width)), key=lambda f: f.rank))

    def described(self, finding: Finding, epoch: int, workers: int) -> str:
        """A finding in words. Epochs count from 0."""
        of = {TRAIN: f"over the last {finding.frames:,} frames{f' of worker {finding.rank}' * (workers > 1)}, the training loss",
              EPOCH: "over the epoch, the training loss", HELD_OUT: "at its end, the cross-validation loss"}[finding.kind]
        return (f"training diverged in epoch {epoch + 1}, near update {finding.updates}: {of} "
                f"{self.bounds.described(finding.kind, finding.loss)}")

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint has to hold of the run."""
        return {"bounds": list(dataclasses.astuple(self.bounds)), "tries": self.tries, "backed_off": self.backed_off}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.bounds, self.tries, self.backed_off = Bounds(*state["bounds"]), state["tries"], list(state["backed_off"])

    def worker_state(self, rank: int) -> dict[str, Any]:
        """What a checkpoint has to hold of a worker of this process."""
        frames, totals = self._seen.get(rank, (0, []))
        return {"frames": frames, "totals": totals, "found": self.found[rank].numbers() if rank in self.found else []}

    def load_worker_state(self, rank: int, state: dict[str, Any]) -> None:
        if state["totals"]:
            self._seen[rank] = state["frames"], list(state["totals"])
        if state["found"]:
            self.found[rank] = Finding.of(state["found"])


def remedy(rate_option: str, rate: float, factor: float, others: Iterable[str]) -> str:
    """What a user can change, in words: the rate, with what N workers make of it, or other options of the strategy."""
    was = f"{rate:g}" + f", times {factor:g} for the workers (--lr-scale)" * (factor != 1.0)
    *first, last = [f"lower {rate_option} (was {was})", *others]
    return f"{', '.join(first)} or {last}" if first else last
