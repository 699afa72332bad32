"""EASGD: the paper's equations written out, what the elastic force keeps, and what it does to workers that differ."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pykaldist.errors import UserError
from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.strategies.easgd import Easgd, EasgdOptions

TARGETS = np.random.default_rng(0).normal(size=(5, 3))
RATE = 0.07


def quadratic(descender, size, steps):
    """Workers that descend to a target each."""
    return [descender(lambda worker, k=k: RATE * (torch.from_numpy(TARGETS[k]) - worker.params), steps, torch.zeros(3, dtype=torch.float64))
            for k in range(size)]


def run(workers, made, epochs=1):
    host = Host(len(workers))
    for epoch in range(epochs):
        for worker in workers:
            worker.epoch, worker.index = epoch, 0
        host.run([s.epoch(w, fabric) for s, w, fabric in zip(made, workers, host.fabrics, strict=True)])
    return host


def reference(size, steps, period, alpha, delta=0.0, epochs=1):
    """(workers' models, the centre): equations 3, 4 and 5 of the paper, an exchange every `period` steps and at an epoch's end."""
    x, v, centre = np.zeros((size, 3)), np.zeros((size, 3)), np.zeros(3)
    for _ in range(epochs):
        for t in range(steps):
            force = alpha * (x - centre) if t % period == 0 else np.zeros_like(x)
            v = delta * v + RATE * (TARGETS[:size] - (x + delta * v))
            x = x + v - force
            if delta == 0.0:
                v[:] = 0.0
            centre = centre + force.sum(0)
        force = alpha * (x - centre)
        x, centre = x - force, centre + force.sum(0)
    return x, centre


@pytest.mark.parametrize("delta", [0.0, 0.6])
@pytest.mark.parametrize(("size", "steps", "period", "rates"), [(2, 12, 3, {}), (5, 10, 4, {"moving_rate": 0.4}),
                                                               (3, 7, 1, {"elastic_rate": 0.3}), (4, 9, 20, {})])
def test_synchronous_easgd_is_the_papers(descender, size, steps, period, rates, delta):
    workers = quadratic(descender, size, steps)
    made = [Easgd(EasgdOptions(average_period=period, local_nesterov=delta, **rates)) for _ in workers]
    host = run(workers, made, 2)
    x, centre = reference(size, steps, period, made[0].options.rates(size)[0], delta, 2)
    for worker, strategy, expected in zip(workers, made, x, strict=True):
        assert np.allclose(strategy.own, expected, rtol=1e-12)
        assert np.allclose(worker.params, centre, rtol=1e-12)
    far = np.linalg.norm(x - x.mean(0), axis=1).mean() / np.linalg.norm(x.mean(0))
    assert host.disagreement == pytest.approx(far)


@pytest.mark.parametrize("free", [False, True])
def test_the_force_takes_from_the_workers_what_it_gives_to_the_centre(descender, simulate, free):
    """Where steps are constant, centre and workers together move by all of them, whoever met whom when."""
    steps = [12, 7, 9, 12] if free else [12] * 4
    workers = [descender(lambda worker, k=k: torch.tensor([1.0, -k], dtype=torch.float64), n, torch.zeros(2, dtype=torch.float64))
               for k, n in enumerate(steps)]
    made = [Easgd(EasgdOptions(average_period=3, elastic_rate=0.2, asynchronous=free)) for _ in workers]
    if free:
        host = simulate(workers, made, spread=0.5, slow={"2": 3.0}, message=0.4)
        assert sum(sum(fabric.staleness.values()) for fabric in host.fabrics) == made[0].moves >= 14
    else:
        run(workers, made)
    moved = torch.stack([s.own for s in made]).sum(0) + made[0].centre
    done = [worker.index for worker in workers]
    assert sum(done) == sum(steps)
    expected = torch.tensor([float(sum(steps)), -float(sum(k * n for k, n in enumerate(done)))], dtype=torch.float64)
    assert torch.allclose(moved, expected, rtol=1e-12)


@pytest.mark.parametrize("free", [False, True])
def test_without_a_force_each_worker_is_alone(descender, simulate, free):
    workers = quadratic(descender, 3, 8)
    made = [Easgd(EasgdOptions(average_period=2, moving_rate=0.0, asynchronous=free)) for _ in workers]
    simulate(workers, made) if free else run(workers, made)
    x, centre = reference(3, 8, 2, 0.0)
    assert np.allclose(torch.stack([s.own for s in made]), x) and not centre.any() and not workers[0].params.any()


def test_an_asynchronous_worker_trains_while_its_model_is_away(descender, simulate):
    """Algorithm 1, one exchange at a time: two workers of equal speed, messages that take no time; written out."""
    workers = quadratic(descender, 2, 6)
    made = [Easgd(EasgdOptions(average_period=2, elastic_rate=0.25, asynchronous=True)) for _ in workers]
    simulate(workers, made, message=1e-9, slow={"1": 1.001})
    x, centre = np.zeros((2, 3)), np.zeros(3)
    for t in range(7):
        for k in range(2):
            force = 0.25 * (x[k] - centre) if t in (2, 4, 6) else np.zeros(3)
            x[k] += (RATE * (TARGETS[k] - x[k]) if t < 6 else 0.0) - force
            centre += force
    assert np.allclose(torch.stack([s.own for s in made]), x, rtol=1e-9) and np.allclose(workers[1].params, centre, rtol=1e-9)


@pytest.mark.parametrize("options", [{}, {"local_nesterov": 0.5}, {"asynchronous": True, "average_period": 3}])
def test_the_centre_comes_to_the_mean_of_what_the_workers_want(descender, simulate, options):
    workers = quadratic(descender, 4, 400)
    made = [Easgd(EasgdOptions(**options)) for _ in workers]
    simulate(workers, made, spread=0.3) if options.get("asynchronous") else run(workers, made)
    assert np.allclose(workers[0].params, TARGETS[:4].mean(0), atol=0.1 if options.get("asynchronous") else 1e-3)
    apart = [float(torch.linalg.vector_norm(s.own - made[0].centre)) for s in made]
    assert min(apart) > 0.05  # the spring gives: workers stay on their way to what each of them wants


def test_statistics_of_the_data_have_no_momentum(descender):
    workers = quadratic(descender, 2, 5)
    for worker in workers:
        worker.statistics = [slice(1, 2)]
    made = [Easgd(EasgdOptions(local_nesterov=0.9)) for _ in workers]
    run(workers, made)
    assert all(s.velocity[1] == 0.0 and s.velocity[0] != 0.0 for s in made)


@pytest.mark.parametrize(("options", "workers"), [({"moving_rate": 1.9}, 4), ({"elastic_rate": 1.0}, 1), ({"elastic_rate": 0.5}, 3),
                                                  ({"moving_rate": -0.1}, 2), ({"local_nesterov": 1.0}, 2)])
def test_what_would_diverge_is_refused(options, workers):
    with pytest.raises(UserError, match="--elastic-rate"):
        EasgdOptions(**options).rates(workers)
