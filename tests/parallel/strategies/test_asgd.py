"""Asynchronous SGD with a parameter server: no update is lost, and staleness and its weight are right."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.errors import UserError
from pykaldist.parallel.strategies.asgd import Asgd, AsgdOptions, Server


def make(descender, sizes, move=None, **options):
    workers = [descender(move or (lambda worker, k=k: torch.full((3,), 10.0**k)), steps, torch.zeros(3)) for k, steps in enumerate(sizes)]
    return workers, [Asgd(AsgdOptions(**{"staleness_discount": False, **options})) for _ in workers]


@settings(max_examples=30)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.floats(0, 2), st.floats(0.01, 3), st.floats(0, 3), st.integers(0, 3))
def test_every_update_is_applied_once(descender, simulate, sizes, spread, message, server, max_distance):
    """Moves that are digits of a decimal number add up to it."""
    workers, strategies = make(descender, sizes, work="shards", max_distance=max_distance)
    host = simulate(workers, strategies, spread, {"0": 2.0}, message, server)
    expected = sum(steps * 10.0**k for k, steps in enumerate(sizes))
    assert all(worker.params.tolist() == [expected] * 3 for worker in workers)
    pushes = sum(sum(fabric.staleness.values()) for fabric in host.fabrics)
    assert len(sizes) <= pushes <= sum(sizes)


@pytest.mark.parametrize("options", [
    {}, {"staleness_discount": False}, {"server_momentum": 0.9}, {"staleness_discount": False, "gradient_decay": 0.8},
    {"server_momentum": 0.5, "gradient_decay": 0.8, "staleness_discount": True}, {"server_adagrad": 0.3, "staleness_discount": True},
    {"server_momentum": 0.7, "gradient_projection": True}, {"server_adagrad": 0.3}, {"server_adagrad": 0.1, "server_momentum": 0.5}])
def test_the_server_does_what_its_head_says(options):
    generator, o = np.random.default_rng(0), AsgdOptions(**options)
    server = Server(torch.zeros(4, dtype=torch.float64), {}, o)
    w, v, a, turned = np.zeros(4), np.zeros(4), np.zeros(4), 0
    for applied in range(20):
        late = int(generator.integers(0, applied + 1))
        u = generator.normal(size=4)
        model, count = server.handle(1, torch.from_numpy(u.copy()), applied - late)
        a += u**2
        if o.server_adagrad:
            u = o.server_adagrad * u / np.sqrt(a)
        if o.gradient_projection and late and u @ v < 0:
            turned += 1
            u = u - (u @ v) / (v @ v) * v
            assert abs(u @ v) < 1e-12
        u = u * o.gradient_decay**late
        if o.staleness_discount or (o.staleness_discount is None and not o.server_adagrad):
            u /= late + 1
        v = o.server_momentum * v + u
        w = w + v
        assert count == applied + 1 and np.allclose(model.numpy(), w)
    assert turned > 3 or not o.gradient_projection
    model, count = server.handle(2, torch.zeros(0), 3)
    assert count == 0 and np.allclose(model.numpy(), w) and server.handle(1, torch.zeros(0), 3)[1] == 20
    assert server.handle(2, None, 3) == (None, 20)


@pytest.mark.parametrize("options", [{"server_momentum": 0.9}, {"server_adagrad": 0.3, "server_momentum": 0.5}])
def test_statistics_have_neither_momentum_nor_rates_of_their_own(options):
    server = Server(torch.zeros(4), {}, AsgdOptions(**options), [slice(1, 3)])
    for read in range(5):
        model, _ = server.handle(0, torch.full((4,), 0.5), read)
    assert model[1:3].tolist() == [2.5, 2.5] and 2.5 not in model[[0, 3]]


def test_servers_that_share_the_parameters_do_what_one_does(descender, simulate):
    found = {}
    for servers in (1, 3):
        workers, strategies = make(descender, [4, 7, 2], servers=servers, work="shards", server_momentum=0.4)
        simulate(workers, strategies, message=1e-6)
        found[servers] = workers[0].params
        assert all(sum(strategy.pushed) == 0 for strategy in strategies)
    assert torch.equal(found[1], found[3])


@pytest.mark.parametrize(("options", "words"), [
    ({"servers": 0}, "--servers 0 is less than 1"), ({"gradient_projection": True}, "--gradient-projection needs --server-momentum"),
    ({"server_adagrad": -1.0}, "--server-adagrad -1 is negative")])
def test_what_cannot_be_is_refused(options, words):
    with pytest.raises(UserError, match=words):
        AsgdOptions(**options)


def test_more_servers_than_workers_are_refused(descender, simulate):
    with pytest.raises(UserError, match="--servers 3: there are 2 workers"):
        simulate(*make(descender, [2, 2], servers=3))


@pytest.mark.parametrize("size", [1, 2, 5])
def test_the_staleness_of_workers_of_equal_speed(descender, simulate, size):
    """Nearly equal: they come round after round in the same order, no two at once. Each is N - 1 updates late; number k, in the first
    round, k."""
    workers, strategies = make(descender, [20] * size, move=lambda worker: torch.ones(3))
    host = simulate(workers, strategies, slow={str(k): 1 + 0.01 * k for k in range(size)}, message=1e-6)
    expected = [{k: 1, size - 1: 19} if k < size - 1 else {k: 20} for k in range(size)]
    assert [dict(fabric.staleness) for fabric in host.fabrics] == expected


@pytest.mark.parametrize("size", [1, 2, 5])
def test_discounted_updates_of_workers_of_equal_speed_are_their_mean(descender, simulate, size):
    """Each of theirs is divided by N; in the first round, by 1, 2, ..., N."""
    workers, strategies = make(descender, [20] * size, move=lambda worker: torch.ones(3), staleness_discount=None)
    simulate(workers, strategies, slow={str(k): 1 + 0.01 * k for k in range(size)}, message=1e-6)
    expected = 19.0 + sum(1 / (k + 1) for k in range(size))
    assert workers[0].params.tolist() == pytest.approx([expected] * 3)
    assert strategies[0].lr_scale == "linear"
    assert Asgd(AsgdOptions(staleness_discount=False)).lr_scale == Asgd(AsgdOptions(server_adagrad=0.1)).lr_scale == "none"


def test_a_bounded_staleness_waits_for_a_slow_server(descender, simulate):
    """Three minibatches' time for each of four workers."""
    hosts = {limit: simulate(*make(descender, [30] * 4, max_distance=limit), server=3.0) for limit in (0, 1, 100)}
    waits = {limit: host.spent()[2] for limit, host in hosts.items()}
    assert hosts[1].notes()["server_load"] > 0.9
    assert waits[0] == waits[100] and waits[1] > 2 * waits[0]


@pytest.mark.parametrize(("limit", "applied", "calls"), [(0, 9, [False]), (3, 5, [False]), (3, 6, [False, True]), (1, 9, [False, True])])
def test_a_worker_waits_where_it_is_refused_and_its_model_too_old(descender, limit, applied, calls):
    """It read the model after 3 updates."""
    strategy, made = Asgd(AsgdOptions(max_distance=limit)), []
    strategy.read, strategy.unsent, strategy.pulled = [3], [1], torch.zeros(1)
    worker = descender(lambda worker: torch.ones(1), 1, torch.ones(1))

    class Fabric:
        staleness: ClassVar[Counter[int]] = Counter()

        async def call_in_turn(self, to, update, read, patient=True):
            assert (to, read) == (0, 3)
            made.append(patient)
            return len(made)

        async def answer(self, ticket):
            return (torch.ones(1), applied + 1) if made[ticket - 1] else (None, applied)

    with pytest.raises(StopIteration):
        strategy._sync(worker, Fabric(), [slice(0, 1)], patient=False).send(None)
    assert made == calls and strategy.unsent == [1 if calls == [False] else 0]
