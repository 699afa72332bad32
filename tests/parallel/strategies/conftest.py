"""A worker that makes moves of its own in place of training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
import torch

from pykaldist.parallel.cluster import Cluster, Compute, Link, Workload
from pykaldist.parallel.simulation import Simulation
from pykaldist.parallel.strategy import Strategy


class Mover:
    """A worker of `params` whose steps are what `move(worker)` adds to them; `frames` in each."""

    def __init__(self, move: Callable[[Mover], torch.Tensor], steps: int, start: torch.Tensor, frames: int = 8) -> None:
        self.params, self._move, self._frames = start.clone(), move, frames
        self.sampler = SimpleNamespace(minibatch_size=frames, minibatches=steps)
        self.optimizer = SimpleNamespace(velocity=torch.zeros_like(start))
        self.statistics: list[slice] = []
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


@pytest.fixture(scope="session")
def descender() -> type[Descender]:
    return Descender


@pytest.fixture(scope="session")
def simulate() -> Callable[..., Simulation]:
    """`simulate(workers, strategies, spread, slow, seconds of a message, seconds of the server, devices)`: an epoch, in seconds of a
    minibatch."""

    def run(workers: list[Descender], strategies: list[Strategy], spread: float = 0.0, slow: dict[str, float] | None = None,
            message: float = 0.1, server: float = 0.0, devices: int = 1) -> Simulation:
        parameters = len(workers[0].params)
        link = Link(4.0 * parameters / message)
        cluster = Cluster("test", "", 64, devices, Workload("", parameters, 8, 1), Compute(1.0, spread=spread, server_seconds=server), link,
                          link, slow=slow or {})
        host = Simulation(len(workers), cluster)
        host.workers = workers
        host.begin_epoch()
        host.run([s.epoch(w, fabric) for s, w, fabric in zip(strategies, workers, host.fabrics, strict=True)])
        return host

    return run


@pytest.fixture
def mover() -> type[Mover]:
    return Mover
