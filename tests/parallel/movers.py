"""Workers for tests that make given moves in place of training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from types import SimpleNamespace

import torch


class Mover:
    """A worker of `params` whose steps are what `move(worker)` adds to them, one after the other; `frames` in each."""

    def __init__(self, move: Callable[[Mover], torch.Tensor], steps: int, start: torch.Tensor, frames: int = 8) -> None:
        self.params, self._move, self._frames = start.clone(), move, frames
        self.sampler = SimpleNamespace(minibatch_size=frames, minibatches=steps)
        parts = [slice(i, i + 1) for i in range(len(start))]
        self.optimizer = SimpleNamespace(velocity=torch.zeros_like(start), additive=True, parts=parts, goes_map_by_map=True,
                                         around=lambda part: nullcontext())
        self.before_part: Callable[[], None] = lambda: None
        self.statistics: list[slice] = []
        self.epoch = self.index = self.frames = self.frames_since_sync = 0

    @property
    def remaining(self) -> int:
        return self.sampler.minibatches - self.index

    def step(self, fraction: float | None = None) -> None:
        move = self._move(self)
        for part in self.optimizer.parts:
            self.before_part()
            with self.optimizer.around(part) if self.optimizer.goes_map_by_map else nullcontext():
                self.params[part].add_(move[part])
        self.index += 1
        self.frames += self._frames
        self.frames_since_sync += self._frames

    def synced(self) -> None:
        self.frames_since_sync = 0


class Descender(Mover):
    """One that strategies which ship gradients can drive, too: its move is minus the gradient."""

    def __init__(self, move: Callable[[Mover], torch.Tensor], steps: int, start: torch.Tensor) -> None:
        super().__init__(move, steps, start)
        self.sampler.epoch = lambda epoch, start=0: iter(())
        self.sampler.frames = steps * self._frames
        self.updates = 0

    def draw_from(self, source: Iterator[object]) -> None:
        pass

    def gradient(self, gradient: torch.Tensor, fraction: float) -> int:
        gradient.copy_(-self._move(self))
        self.index += 1
        self.frames += self._frames
        return self._frames

    def apply(self, gradient: torch.Tensor, frames: float, fraction: float) -> None:
        self.params.sub_(gradient)
        self.updates += 1
