"""A worker: one replica of the model, with its part of the data, its optimiser and its counters.

All parameters are views into one flat buffer (`params`), and so are momentum and gradients. So a strategy exchanges a model in one call.
`state_dict()` holds everything of a worker: a run that is stopped and resumed gives the same result as one that was not, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from pykaldist.frames.sampler import Minibatch, Sampler
from pykaldist.nnet.cuda_graphs import Parts
from pykaldist.optim.optimizer import Optimizer
from pykaldist.parallel.fabric.clock import clock_of

COUNTERS = ("epoch", "index", "frames", "frames_since_sync", "updates")


class Worker:
    """One replica of the model. `index` counts the minibatches that are done in this epoch, `updates` those of the whole run.

    `on_step` is called after each minibatch. `num_epochs`: those of the run, at most. `share`: the part of the learning rate that this
    worker takes; less than 1 where not all workers train (`strategies/base/growth.py`).
    """

    def __init__(self, optimizer: Optimizer, sampler: Sampler) -> None:
        self.learner, self.optimizer, self.sampler = optimizer.learner, optimizer, sampler
        self._totals = torch.zeros(self.learner.num_totals, dtype=torch.float64, device=self.learner.model.device)
        self.learn_rate, self.share, self.num_epochs = 0.0, 1.0, 1
        self._rate_at: Callable[[float], float] | None = None
        self.epoch = self.index = self.frames = self.frames_since_sync = self.updates = 0
        self.on_step: Callable[[], None] = lambda: None
        self.clock, self._seconds = clock_of(self.learner.model.device), {"load": 0.0}
        self._source: Iterator[Minibatch] = iter(())
        self._since = (0.0, 0, sampler.minibatches)

    @property
    def params(self) -> Tensor:
        """All parameters of the model, flat."""
        return self.learner.model.params

    @property
    def load_seconds(self) -> float:
        """Seconds of this epoch in which minibatches were made, as far as `clock` has settled them."""
        return self._seconds["load"]

    @property
    def totals(self) -> Tensor:
        """The learner's totals of the epoch so far."""
        self.learner.settle()
        return self._totals

    @property
    def statistics(self) -> list[slice]:
        """The slices of `params` that hold statistics of the data. They are not trained by steps and have no momentum."""
        return self.learner.model.statistics()

    @property
    def remaining(self) -> int:
        """Minibatches that are left in the epoch."""
        return self._since[1] + self._since[2] - self.index

    def begin_epoch(self, epoch: int, learn_rate: float, rate_at: Callable[[float], float] | None = None) -> None:
        """Reset the epoch's counters, unless the worker was loaded from the middle of this epoch.

        `rate_at(fraction of the epoch)`, where it is given, is the learning rate of each minibatch, in place of `learn_rate`.
        """
        if epoch != self.epoch or self.index == 0:
            self.totals.zero_()
            self.index = self.frames = 0
        self.epoch, self.learn_rate, self._rate_at, self._seconds = epoch, learn_rate, rate_at, {"load": 0.0}
        self._source, self._since = self.sampler.epoch(epoch, self.index), (0.0, 0, self.sampler.minibatches)

    def add_totals_to(self, totals: Tensor) -> None:
        """Add to these totals from now on, which begin as they are: those of stacked workers are rows of one tensor."""
        self._totals = totals.copy_(self._totals)

    def draw_from(self, source: Iterator[Minibatch]) -> None:
        """Take the next minibatch from `source`, which may be of another worker's part of the data."""
        self._source = source

    def take_share(self, source: Iterator[Minibatch], since: tuple[float, int, int]) -> None:
        """Take all further minibatches of the epoch from `source`.

        `since`: (the fraction of the worker's epoch that was done, its minibatches that were done, those that were left) at some time.
        """
        self._source, self._since = source, since

    def join(self, other: dict[str, Any]) -> None:
        """Become what another worker is, by its `state_dict`. What that has counted stays its own."""
        self.load_state_dict(other)
        self._totals.zero_()
        self.frames = self.frames_since_sync = 0

    def add_load(self, since: Any, those: Sequence[Worker]) -> None:
        """Add the time since a mark of this worker's clock to the seconds of these workers in which minibatches were made, in equal parts.
        """
        self.clock.add(since, "load", [worker._seconds for worker in those])

    def next_minibatch(self) -> Minibatch:
        """Take the next minibatch."""
        before = self.clock.mark()
        minibatch = next(self._source)
        self.add_load(before, [self])
        return minibatch

    def set_rate(self, fraction: float | None) -> None:
        """Set the learning rate when `fraction` of the epoch is over; None: the part of the worker's own minibatches that are done."""
        if self._rate_at is not None:
            done, index, left = self._since
            own = done + (1.0 - done) * (self.index - index) / left
            self.learn_rate = self._rate_at(own if fraction is None else fraction)

    def set_share(self, share: float) -> None:
        """Set the part of the learning rate that this worker takes."""
        self.share = self.optimizer.share = share

    def _done(self, minibatch: Minibatch) -> None:
        self.index += 1
        self.frames += len(minibatch)
        self.frames_since_sync += len(minibatch)
        self.on_step()

    def step(self, fraction: float | None = None) -> None:
        """Take the next minibatch and make one local update with it. No value is read back from the device.

        `fraction` is the part of the epoch that is over; without it, the part of the worker's own minibatches that are done.
        """
        self.set_rate(fraction)
        minibatch = self.next_minibatch()
        self.optimizer.local_step(minibatch, self.share * self.learn_rate, self._totals)
        self.stepped(minibatch)

    def stepped(self, minibatch: Minibatch) -> None:
        """Count a minibatch with which a local update has been made."""
        self.updates += 1
        self._done(minibatch)

    def gradient(self, gradient: Tensor, fraction: float, parts: Parts | None = None) -> int:
        """Compute the summed gradient of the next minibatch into a flat buffer, and return its number of frames.

        For strategies that send gradients.

        `fraction` is the part of the epoch that is over, the same for all workers, however many minibatches each has. `parts` is told which
        of its parts are made.
        """
        self.set_rate(fraction)
        minibatch = self.next_minibatch()
        self.optimizer.set_rate(self.learn_rate)
        self.optimizer.gradient(minibatch, gradient, self._totals, parts)
        return self.shipped(minibatch)

    def shipped(self, minibatch: Minibatch) -> int:
        """Count a minibatch of which a gradient has been made, and return its number of frames."""
        self._done(minibatch)
        return len(minibatch)

    def apply(self, gradient: Tensor, frames: float, fraction: float) -> None:
        """Make one update from a gradient that is summed over `frames` frames, of one worker or many, when `fraction` of the epoch is over.
        """
        self.set_rate(fraction)
        self.optimizer.apply(gradient, self.learn_rate, cast(int, frames))  # of a group of workers, the mean over them
        self.updates += 1

    def restart(self) -> None:
        """Go back to the beginning of the epoch, with a new optimiser that has no memory. The count of `updates` goes on."""
        self.optimizer = type(self.optimizer)(self.learner, self.optimizer.options)
        self.index = self.frames = self.frames_since_sync = 0

    def synced(self) -> None:
        """Note that the model has just been exchanged. Strategies call it."""
        self.frames_since_sync = 0

    def state_dict(self) -> dict[str, Any]:
        """Everything that a checkpoint has to hold of the worker."""
        counters = {n: getattr(self, n) for n in COUNTERS}
        return {**counters, "params": self.params, "totals": self.totals, "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in COUNTERS:
            setattr(self, name, state[name])
        self.params.copy_(state["params"])
        self.totals.copy_(state["totals"])
        self.optimizer.load_state_dict(state["optimizer"])
