"""Asynchronous SGD with a parameter server: nothing is lost, lateness is what it should be, and weighs what it should."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.parallel.strategies.asgd import Asgd, AsgdOptions, Server


def make(descender, sizes, move=None, **options):
    workers = [descender(move or (lambda worker, k=k: torch.full((3,), 10.0**k)), steps, torch.zeros(3)) for k, steps in enumerate(sizes)]
    return workers, [Asgd(AsgdOptions(**options)) for _ in workers]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.floats(0, 2), st.floats(0.01, 3), st.floats(0, 3), st.integers(0, 3))
def test_every_update_is_applied_once(descender, simulate, sizes, spread, message, server, max_distance):
    """Moves that are digits of a decimal number add up to it."""
    workers, strategies = make(descender, sizes, work="shards", max_distance=max_distance)
    host = simulate(workers, strategies, spread, {"0": 2.0}, message, server)
    expected = sum(steps * 10.0**k for k, steps in enumerate(sizes))
    assert all(worker.params.tolist() == [expected] * 3 for worker in workers)
    pushes = sum(sum(fabric.staleness.values()) for fabric in host.fabrics)
    assert len(sizes) <= pushes <= sum(sizes)


@pytest.mark.parametrize(("momentum", "decay", "discount"), [(0.0, 1.0, False), (0.9, 1.0, False), (0.0, 0.8, False), (0.5, 0.8, True)])
def test_the_server_does_what_its_head_says(momentum, decay, discount):
    generator = np.random.default_rng(0)
    server = Server(torch.zeros(4, dtype=torch.float64), None, AsgdOptions("queue", momentum, decay, discount))
    w, v = np.zeros(4), np.zeros(4)
    for applied in range(20):
        late = int(generator.integers(0, applied + 1))
        u = generator.normal(size=4)
        model, count = server.handle(1, torch.from_numpy(u.copy()), applied - late)
        u *= decay**late
        if discount and late:
            u /= late
        v = momentum * v + u
        w = w + v
        assert count == applied + 1 and np.allclose(model.numpy(), w)
    model, count = server.handle(2, torch.zeros(0), 3)
    assert count == 20 and np.allclose(model.numpy(), w)
    assert server.handle(2, None, 3) == (None, 20)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_workers_of_equal_speed_are_one_behind_each_other(descender, simulate, size):
    """Nearly equal: they come round after round in the same order, no two at once. Each is N - 1 updates late; number k, in the first
    round, k."""
    workers, strategies = make(descender, [20] * size, move=lambda worker: torch.ones(3))
    host = simulate(workers, strategies, slow={str(k): 1 + 0.01 * k for k in range(size)}, message=1e-6)
    expected = [{k: 1, size - 1: 19} if k < size - 1 else {k: 20} for k in range(size)]
    assert [dict(fabric.staleness) for fabric in host.fabrics] == expected


def test_whoever_may_not_fall_behind_waits_for_a_server_that_is_slow(descender, simulate):
    """Three minibatches' time for each of four workers."""
    hosts = {limit: simulate(*make(descender, [30] * 4, max_distance=limit), server=3.0) for limit in (0, 1, 100)}
    waits = {limit: host.spent()[2] for limit, host in hosts.items()}
    assert hosts[1].notes()["server_load"] > 0.9
    assert waits[0] == waits[100] and waits[1] > 2 * waits[0]


@pytest.mark.parametrize(("limit", "applied", "calls"), [(0, 9, [False]), (3, 5, [False]), (3, 6, [False, True]), (1, 9, [False, True])])
def test_a_worker_waits_where_it_is_turned_away_and_too_far_behind(limit, applied, calls):
    """It read the model after 3 updates."""
    strategy, made = Asgd(AsgdOptions(max_distance=limit)), []
    strategy.read = 3

    class Fabric:
        async def call(self, to, update, read, patient=True):
            assert (to, read) == (0, 3)
            made.append(patient)
            return len(made)

        async def done(self, ticket):
            return (torch.ones(1), applied + 1) if made[ticket - 1] else (None, applied)

    with pytest.raises(StopIteration) as end:
        strategy._push(torch.ones(1), Fabric(), patient=False).send(None)
    assert made == calls and (end.value.value[0] is None) == (calls == [False])
