"""A worker that makes moves of its own in place of training."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch


class Mover:
    """A worker of `params` whose steps are what `move(worker)` adds to them; `frames` in each."""

    def __init__(self, move: Callable[[Mover], torch.Tensor], steps: int, start: torch.Tensor, frames: int = 8) -> None:
        self.params, self._move, self._frames = start.clone(), move, frames
        self.sampler = SimpleNamespace(minibatch_size=frames, minibatches=steps)
        self.optimizer = SimpleNamespace(velocity=torch.zeros_like(start))
        self.epoch = self.index = self.frames = self.frames_since_sync = 0

    @property
    def remaining(self) -> int:
        return self.sampler.minibatches - self.index

    def step(self) -> None:
        self.params.add_(self._move(self))
        self.index += 1
        self.frames += self._frames
        self.frames_since_sync += self._frames

    def synced(self) -> None:
        self.frames_since_sync = 0


@pytest.fixture
def mover() -> type[Mover]:
    return Mover
