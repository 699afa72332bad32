"""A worker: one replica of the model, with its shard of the data, its optimiser and its counters.

Parameters are views into one flat buffer (`params`), and so are momentum and gradients, so that a strategy exchanges a model
in one call. All of a worker is in its `state_dict()`: a run that is stopped and resumed equals one that was not, bit for bit.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pykaldist.frames.sampler import Minibatch, Sampler
from pykaldist.optim.optimizer import Optimizer


@dataclass
class Step:
    """A local minibatch's place in the run."""

    index: int  # within the epoch, from 1: the updates made when it is done
    frames_since_sync: int  # this minibatch included
    last: bool  # the last of the worker's epoch


class Worker:
    """One replica. `on_step` is called between minibatches (progress, checkpoints)."""

    def __init__(self, optimizer: Optimizer, sampler: Sampler) -> None:
        self.learner, self.optimizer, self.sampler = optimizer.learner, optimizer, sampler
        self.totals = torch.zeros(self.learner.num_totals, dtype=torch.float64, device=self.learner.model.device)  # of the epoch so far
        self.gradients: Tensor | None = None
        self.learn_rate = 0.0
        self._rate_at: Callable[[float], float] | None = None
        self.epoch = self.index = self.frames = self.frames_since_sync = self.updates = 0
        self.on_step: Callable[[], None] = lambda: None
        self.load_seconds = 0.0
        self._minibatch: Minibatch | None = None

    @property
    def params(self) -> Tensor:
        return self.learner.model.params

    def begin_epoch(self, epoch: int, learn_rate: float, rate_at: Callable[[float], float] | None = None) -> None:
        """Reset the epoch's counters, unless the worker was loaded from the middle of this very epoch.

        `rate_at(fraction of the worker's epoch)` is the rate of each minibatch where it is given, in place of `learn_rate`.
        """
        if epoch != self.epoch or self.index == 0:
            self.totals.zero_()
            self.index = self.frames = 0
        self.epoch, self.learn_rate, self._rate_at, self.load_seconds = epoch, learn_rate, rate_at, 0.0

    async def minibatches(self) -> AsyncIterator[Step]:
        """The epoch's remaining minibatches; each is to be consumed by `step` or `gradient` before the next."""
        before = time.perf_counter()
        for minibatch in self.sampler.epoch(self.epoch, self.index):
            self.load_seconds += time.perf_counter() - before
            self._minibatch = minibatch
            if self._rate_at is not None:
                self.learn_rate = self._rate_at(self.index / self.sampler.minibatches)
            self.frames_since_sync += len(minibatch)
            yield Step(self.index + 1, self.frames_since_sync, minibatch.last)
            self.index += 1
            self.frames += len(minibatch)
            self.on_step()
            before = time.perf_counter()

    def _current(self) -> Minibatch:
        assert self._minibatch is not None, "no minibatch: call within `async for step in worker.minibatches()`"
        return self._minibatch

    def step(self) -> None:
        """One local update: gradient and optimiser. Nothing is read back from the device."""
        self.optimizer.local_step(self._current(), self.learn_rate, self.totals)
        self.updates += 1

    def gradient(self) -> tuple[Tensor, int]:
        """The minibatch's summed gradient in a flat buffer, and its frames; for strategies that ship gradients."""
        if self.gradients is None:
            self.gradients = torch.zeros_like(self.params)
        self.optimizer.set_rate(self.learn_rate)
        minibatch = self._current()
        self.optimizer.gradient(minibatch, self.gradients, self.totals)
        return self.gradients, len(minibatch)

    def apply(self, gradient: Tensor, frames: int) -> None:
        """One update from a gradient summed over `frames` frames, of one worker or of many."""
        self.optimizer.apply(gradient, self.learn_rate, frames)
        self.updates += 1

    def synced(self) -> None:
        """To be called by a strategy when the model has been exchanged."""
        self.frames_since_sync = 0

    def state_dict(self) -> dict[str, Any]:
        counters = {n: getattr(self, n) for n in ("epoch", "index", "frames", "frames_since_sync", "updates")}
        return {**counters, "params": self.params.cpu(), "totals": self.totals.cpu(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in ("epoch", "index", "frames", "frames_since_sync", "updates"):
            setattr(self, name, state[name])
        self.params.copy_(state["params"])
        self.totals.copy_(state["totals"])
        self.optimizer.load_state_dict(state["optimizer"])
