"""Decentralised SGD: mixing is doubly stochastic whatever the speeds; in lockstep it is what the papers' matrices say."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.errors import UserError
from pykaldist.optim.sgd import SgdOptions
from pykaldist.parallel.fabric.interface import Average, AwaitAnswer, Call, Fabric, MoreMinibatches, TakeMinibatch
from pykaldist.parallel.fabric.mixing import Mixing
from pykaldist.parallel.strategies.adpsgd import PATTERNS, Adpsgd, AdpsgdOptions, partner
from pykaldist.parallel.strategies.hadpsgd import Hadpsgd, HadpsgdOptions
from pykaldist.parallel.strategies.ssgd import Ssgd

patterns = st.sampled_from(PATTERNS)


@settings(max_examples=60)
@given(st.integers(1, 7), patterns, st.sampled_from(["queue", "shards"]), st.floats(0, 2), st.floats(0.01, 5), st.floats(0.2, 5))
def test_mixing_is_doubly_stochastic(descender, simulate, size, pattern, work, spread, message, slow):
    """Model k starts as the k-th unit vector and nobody moves it: models are their own weights, which are never negative, and end even."""
    seen = []

    def look(worker):
        seen.append(worker.params.clone())
        return torch.zeros(size)

    workers = [descender(look, 6, row) for row in torch.eye(size)]
    strategies = [Adpsgd(AdpsgdOptions(work, pattern)) for _ in workers]
    simulate(workers, strategies, spread, {"0": slow}, message)
    assert torch.stack(seen).sum(1).allclose(torch.ones(len(seen)), atol=1e-5) and torch.stack(seen).min() > -1e-6
    assert all(worker.params.allclose(torch.full((size,), 1.0 / size), atol=1e-6) for worker in workers)


@settings(max_examples=30)
@given(st.integers(1, 7), patterns, st.floats(0, 2), st.floats(0.01, 5), st.floats(0.2, 5))
def test_the_mean_moves_by_the_mean_of_all_moves(descender, simulate, size, pattern, spread, message, slow):
    workers = [descender(lambda worker, k=k: torch.full((2,), 10.0**k), 5, torch.zeros(2)) for k in range(size)]
    strategies = [Adpsgd(AdpsgdOptions("shards", pattern)) for _ in workers]
    simulate(workers, strategies, spread, {"0": slow}, message)
    expected = 5 * sum(10.0**k for k in range(size)) / size
    assert all(worker.params.tolist() == pytest.approx([expected] * 2, rel=1e-5) for worker in workers)
    if pattern != "delay-by-one":
        assert [strategy.age for strategy in strategies] == pytest.approx([5.0] * size)  # steps, of which none is lost


@settings(max_examples=30)
@given(st.integers(2, 6), st.sampled_from(PATTERNS[:3]), st.floats(0, 2), st.floats(0.01, 5), st.data())
def test_when_a_worker_dies_the_others_do_its_work(descender, simulate, size, pattern, spread, message, data):
    """Whatever it had under way: every minibatch is done by somebody, and the others end with the same model."""
    dead, at = data.draw(st.integers(0, size - 1)), data.draw(st.floats(0, 12))
    workers = [descender(lambda worker: torch.ones(2), 6, torch.zeros(2)) for _ in range(size)]
    strategies = [Adpsgd(AdpsgdOptions("shards", pattern)) for _ in workers]
    host = simulate(workers, strategies, spread, {"0": 2.0}, message, failures=[(dead, at)])
    living = [worker for rank, worker in enumerate(workers) if rank in host.living]
    assert all(torch.equal(worker.params, living[0].params) for worker in living)
    assert len(host.living) in (size - 1, size) and sum(worker.index for worker in workers) >= 6 * size
    assert sum(worker.index for worker in living) >= 6 * (size - 1)


@settings(max_examples=20)
@given(st.sampled_from([(4, 2), (6, 2), (6, 3)]), st.sampled_from(PATTERNS[:3]), st.sampled_from(["queue", "shards"]), st.floats(0, 2),
       st.floats(0.01, 5), st.data())
def test_when_a_worker_of_a_group_dies_the_other_groups_do_its_work(descender, simulate, sizes, pattern, work, spread, message, data):
    """The group is gone as a whole; every minibatch of all is done by a group that lives, or by one that died after it had done it."""
    size, group = sizes
    dead, at = data.draw(st.integers(0, size - 1)), data.draw(st.floats(0, 12))
    workers = [descender(lambda worker: torch.ones(2), 6, torch.zeros(2)) for _ in range(size)]
    strategies = [Hadpsgd(HadpsgdOptions(work, pattern, group_size=group)) for _ in workers]
    host = simulate(workers, strategies, spread, {"0": 2.0}, message, failures=[(dead, at)])
    living = [worker for rank, worker in enumerate(workers) if rank in host.living]
    assert all(torch.equal(worker.params, living[0].params) for worker in living)
    assert list(host.living) in ([*range(size)], [rank for rank in range(size) if rank // group != dead // group])
    assert sum(worker.index for worker in workers) >= 6 * size and sum(worker.index for worker in living) >= 6 * (size - group)


def matrix(pattern, size, round):
    """T of a round in lockstep, by its definition."""
    if pattern == "delay-by-one":
        return np.full((size, size), 1.0 / size)
    if pattern == "pairwise":
        mixed = np.eye(size)
        for k in range(0, size, 2):
            j = partner(AdpsgdOptions(pattern=pattern), k, range(size), round)
            both = np.eye(size)
            both[np.ix_([k, j], [k, j])] = 0.5
            mixed = both @ mixed
        return mixed
    after = [partner(AdpsgdOptions(pattern=pattern), k, range(size), round) for k in range(size)]
    mixed = np.eye(size) / 3
    for k, j in enumerate(after):
        mixed[k, j] += 1 / 3
        mixed[j, k] += 1 / 3
    return mixed


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("size", [2, 3, 4, 6])
def test_in_lockstep_it_is_w_t_minus_gradients_of_before(descender, simulate, pattern, size):
    """W <- T W - G(W), against matrices; nothing is stale."""
    generator = np.random.default_rng(size)
    factors, start = generator.uniform(0.05, 0.4, size), generator.normal(size=(size, 5))
    found = [[] for _ in range(size)]

    def move(worker, k):
        found[k].append(worker.params.clone().numpy())
        return -factors[k] * worker.params

    workers = [descender(lambda worker, k=k: move(worker, k), 8, torch.from_numpy(row)) for k, row in enumerate(start)]
    host = simulate(workers, [Adpsgd(AdpsgdOptions("shards", pattern)) for _ in workers])
    w = start
    for round in range(8):
        assert np.allclose(np.stack([seen[round] for seen in found]), w)
        w = matrix(pattern, size, round) @ w - factors[:, None] * w
    assert all(np.allclose(worker.params.numpy(), w.mean(0)) for worker in workers)
    assert set().union(*(fabric.staleness for fabric in host.fabrics)) == {0}


@pytest.mark.parametrize("size", range(2, 9))
def test_partners(size):
    rings = [[partner(AdpsgdOptions(pattern="random-ring"), k, range(size), t) for k in range(size)] for t in range(20)]
    for ring in rings:
        way = list(itertools.accumulate(range(size - 1), lambda k, _, ring=ring: ring[k], initial=0))
        assert sorted(way) == list(range(size)) and ring[way[-1]] == 0
    assert size < 4 or len({tuple(ring) for ring in rings}) > 5
    pairs = [[partner(AdpsgdOptions(pattern="pairwise"), k, range(size), t) for k in range(size)] for t in range(40)]
    assert {k for k in range(size) if any(row[k] is not None for row in pairs)} == set(range(0, size, 2))
    assert {j for row in pairs for j in row if j is not None} == set(range(1, size, 2))


def test_a_worker_that_has_given_its_share_away_refuses_calls():
    """With c = 1/3, of a model that is under way 2/3 are left after one answer, 4/9 after two; a third would leave less than 1/3."""
    strategy, params = Adpsgd(AdpsgdOptions()), torch.zeros(1)
    strategy.begun, mixing = True, Mixing(params, strategy.options.share)
    answers = [strategy._answer(mixing, torch.ones(1), 3.0)[0] for _ in range(3)]
    assert answers[0].item() == pytest.approx(1) and answers[1].item() == pytest.approx(2 / 3) and answers[2] is None
    assert params.item() == pytest.approx(5 / 9) and strategy.age == pytest.approx(5 / 3)
    strategy.begun = False
    assert strategy._answer(mixing, torch.ones(1), 3.0)[0] is not None


class Answering(Fabric):
    """A worker of two whose calls are answered while it computes; the test answers what it asks for itself."""

    answers_while_computing = True


@pytest.mark.parametrize("additive", [True, False])
def test_a_step_that_rescales_is_that_of_the_mixed_model(descender, additive):
    """With max-norm 1, and another's model that has been brought to it already: its own, of norm 5, is brought to it after mixing."""

    class Worker(descender):
        def step(self, fraction=None):
            self.index, self.frames = self.index + 1, self.frames + 8
            fabric.handler(1, torch.ones(1), 1.0)
            self.params.clamp_(max=1.0)

        def gradient(self, gradient, fraction):
            fabric.handler(1, torch.ones(1), 1.0)
            return super().gradient(gradient, fraction)

        def apply(self, gradient, frames, fraction):
            self.params.clamp_(max=1.0)

    strategy, worker = Adpsgd(AdpsgdOptions()), Worker(lambda worker: torch.zeros(1), 1, torch.tensor([5.0]))
    worker.optimizer.additive = additive
    fabric, answer, models = Answering(0, 2), None, []
    epoch = strategy.epoch(worker, fabric)
    back = torch.tensor([1.0 if additive else 4.0])  # the other's model, or the difference
    while True:
        request = epoch.send(answer)
        if isinstance(request, Average):
            break
        models.append(worker.params.item())
        fraction = 0.0 if len(models) == 1 else None
        answer = {TakeMinibatch: fraction, Call: 1, AwaitAnswer: (back, 0.0), MoreMinibatches: False}[type(request)]
    assert worker.params.item() == (1.0 if not additive else pytest.approx(1.0 - 4 / 3 - 4 / 3))
    assert (strategy.gradient is None) == additive


@pytest.mark.parametrize("options, additive", [({}, True), ({"momentum": 0.9, "l2_penalty": 1e-5, "max_change": 1.0}, True),
                                               ({"max_norm": 1.0}, False), ({"l1_penalty": 1e-5}, False)])
def test_which_optimisers_add(make_workers, options, additive):
    worker = make_workers()[0]
    assert type(worker.optimizer)(worker.learner, SgdOptions(**options)).additive == additive


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("options", [{}, {"momentum": 0.5}])
def test_one_group_is_ssgd_at_the_rate_of_the_mean(make_workers, train, simulate, pattern, options):
    """4 times the rate of the sum; a power of two, so that it is so to the bit but for where the division stands."""
    expected = train(make_workers(4, minibatch_size=8, **options), [Ssgd() for _ in range(4)], 1, 0.01)
    workers = make_workers(4, minibatch_size=8, **options)
    for worker in workers:
        worker.begin_epoch(0, 0.04)
    simulate(workers, [Hadpsgd(HadpsgdOptions("shards", pattern, group_size=4)) for _ in workers], spread=0.5)
    assert all(torch.allclose(worker.params, expected, atol=1e-6) for worker in workers)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_groups_of_one_are_adpsgd(make_workers, simulate, pattern):
    found = []
    for strategy in (lambda: Adpsgd(AdpsgdOptions(pattern=pattern)), lambda: Hadpsgd(HadpsgdOptions(pattern=pattern, group_size=1))):
        workers = make_workers(5, minibatch_size=4, momentum=0.3)
        for worker in workers:
            worker.begin_epoch(0, 0.02)
        host = simulate(workers, [strategy() for _ in workers], spread=0.5, slow={"1": 3.0})
        found.append((workers[0].params, host.elapsed(), host.notes()))
    assert torch.equal(found[0][0], found[1][0]) and found[0][1:] == found[1][1:]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_groups_are_the_workers_of_a_node(make_workers, simulate, pattern):
    found = []
    for size in (0, 3):
        workers = make_workers(6, minibatch_size=4)
        for worker in workers:
            worker.begin_epoch(0, 0.02)
        simulate(workers, [Hadpsgd(HadpsgdOptions(pattern=pattern, group_size=size)) for _ in workers], spread=0.5, devices=3)
        found.append(workers[0].params)
    assert torch.equal(*found)


def test_groups_that_do_not_come_out_even_are_refused(make_workers, simulate):
    workers = make_workers(6)
    with pytest.raises(UserError, match="--group-size 4: 6 workers make no whole number of such groups"):
        simulate(workers, [Hadpsgd(HadpsgdOptions(group_size=4)) for _ in workers])
    with pytest.raises(UserError, match="4 workers a node: 6 workers make no whole number"):
        simulate(workers, [Hadpsgd(HadpsgdOptions()) for _ in workers], devices=4)
    with pytest.raises(UserError, match="--group-size -1 is negative"):
        HadpsgdOptions(group_size=-1)
