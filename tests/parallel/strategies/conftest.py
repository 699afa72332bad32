"""Workers for tests that make given moves in place of training, alone or on a simulated cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from movers import Descender, Mover

from pykaldist.parallel.clusters.cluster import Cluster, Compute, Failure, Link, Workload
from pykaldist.parallel.engines.simulation import Simulation
from pykaldist.parallel.strategies.base.strategy import Strategy


@pytest.fixture(scope="session")
def descender() -> type[Descender]:
    return Descender


@pytest.fixture(scope="session")
def simulate() -> Callable[..., Simulation]:
    """`simulate(workers, strategies, spread, slow, seconds of a message, seconds of the server, devices, failures)`: an epoch, in seconds
    of a minibatch."""

    def run(workers: list[Descender], strategies: list[Strategy], spread: float = 0.0, slow: dict[str, float] | None = None,
            message: float = 0.1, server: float = 0.0, devices: int = 1,
            failures: Sequence[tuple[int, float]] = ()) -> Simulation:
        parameters = len(workers[0].params)
        link = Link(4.0 * parameters / message)
        cluster = Cluster("test", "", 64, devices, Workload("", parameters, 8, 1), Compute(1.0, spread=spread, server_seconds=server), link,
                          link, slow=slow or {}, failures=tuple(Failure(*failure) for failure in failures))
        host = Simulation(len(workers), cluster)
        host.workers, host.lost_with = workers, strategies[0].lost_with
        host.begin_epoch()
        host.run([s.epoch(w, fabric) for s, w, fabric in zip(strategies, workers, host.fabrics, strict=True)])
        return host

    return run


@pytest.fixture
def mover() -> type[Mover]:
    return Mover
