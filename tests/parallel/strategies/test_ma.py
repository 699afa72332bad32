"""Model averaging: what it equals, and what pairwise averages keep."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pykaldist.errors import UserError
from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.strategies import ma as ma_module
from pykaldist.parallel.strategies.ma import REDUCE_TYPES, Ma, MaOptions, source
from pykaldist.parallel.strategies.ssgd import Ssgd

PAIRWISE = [(kind, n) for kind in REDUCE_TYPES[1:] for n in (2, 3, 4, 5, 8, 16) if kind != "butterfly" or n & (n - 1) == 0]

NOTHING = {"sent": None, "common": None, "remainders": None, "dealt": 0}  # under way


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_with_a_period_of_one_and_plain_sgd_it_is_ssgd(make_workers, train, size):
    """w - mean_k(N lr g_k) = w - lr sum_k g_k, with minibatches of the same size everywhere."""
    ma = train(make_workers(size, minibatch_size=4), [Ma(MaOptions(average_period=1)) for _ in range(size)], 2, 0.01 * size)
    ssgd = train(make_workers(size, minibatch_size=4), [Ssgd() for _ in range(size)], 2, 0.01)
    assert torch.allclose(ma, ssgd, atol=1e-6)


def test_the_average_over_one_worker_is_its_model(make_workers, train):
    assert torch.equal(train(make_workers(), [Ma(MaOptions(average_period=3))]), train(make_workers(), [Ma(MaOptions())]))


def run(workers, options, host=None):
    """One epoch; the strategies after it."""
    host, strategies = host or Host(len(workers)), [Ma(options) for _ in workers]
    host.run([s.epoch(w, fabric) for s, w, fabric in zip(strategies, workers, host.fabrics, strict=True)])
    return strategies


def test_an_average_is_weighted_by_frames_since_the_last_one(mover):
    """Moves of 1, 2, 3 with 8, 16, 24 frames; then only the last worker has any left."""
    workers = [mover(lambda w, k=k: torch.full((2,), float(k)), 2 if k == 3 else 1, torch.zeros(2), 8 * k) for k in (1, 2, 3)]
    run(workers, MaOptions(average_period=1))
    mean = np.average([1.0, 2.0, 3.0], weights=[8, 16, 24])
    assert all(torch.allclose(w.params, torch.full((2,), float(mean + 3.0))) for w in workers)


@pytest.mark.parametrize("content", ["model", "all"])
def test_the_momentum_is_averaged_on_request(mover, content):
    def move(worker):
        worker.optimizer.velocity += start
        return start

    start = torch.ones(3)
    workers = [mover(lambda w, k=k: move(w) * k, 1, torch.zeros(3)) for k in (1, 3)]
    for k, worker in enumerate(workers):
        worker.optimizer.velocity.fill_(4.0 * k)
    run(workers, MaOptions(average_period=1, reduce_content=content))
    assert [w.optimizer.velocity[0].item() for w in workers] == ([3.0, 3.0] if content == "all" else [1.0, 5.0])
    assert [w.params[0].item() for w in workers] == [2.0, 2.0]


@pytest.mark.parametrize(("kind", "size"), PAIRWISE)
def test_pairwise_patterns_pair(kind, size):
    """What one sends to is what hears from it; nobody hears from itself; each hears from one."""
    for exchange in range(2 * size):
        pairs = [source(kind, k, size, exchange) for k in range(size)]
        assert all(pairs[to][1] == k and to != k for k, (to, _) in enumerate(pairs))
        assert sorted(whence for _, whence in pairs) == list(range(size))
        if kind == "butterfly":
            assert all(to == whence for to, whence in pairs)
    if kind == "hoppingring":
        assert {source(kind, 0, size, t)[0] for t in range(size - 1)} == set(range(1, size))


@pytest.mark.parametrize(("kind", "size"), PAIRWISE)
def test_mixing_keeps_the_mean_and_brings_models_together(mover, monkeypatch, kind, size):
    """Workers that only mix: the mean stays, the spread falls; the butterfly has the full average after log2 N exchanges."""
    monkeypatch.setattr(ma_module, "PIECE", 4)
    start = torch.randn(size, 11, dtype=torch.float64, generator=torch.Generator().manual_seed(size))
    seen = []

    def look(worker):
        seen.append(worker.params.clone())
        return torch.zeros(11, dtype=torch.float64)

    rounds = 9
    workers = [mover(look, rounds, row) for row in start]
    strategies = run(workers, MaOptions(average_period=1, reduce_type=kind))
    assert all(s.exchanges == rounds for s in strategies)
    moments = torch.stack(seen).view(rounds, size, -1)  # before each exchange
    assert torch.allclose(moments.mean(1), start.mean(0).expand(rounds, -1))
    spreads = moments.std(1).norm(dim=1)
    assert (spreads[1:] <= spreads[:-1] + 1e-12).all() and spreads[-1] < 0.6 * spreads[0]
    if kind == "butterfly":
        full = size.bit_length() - 1
        assert torch.allclose(moments[full], start.mean(0).expand(size, -1)) and not torch.allclose(moments[full - 1][0], start.mean(0))
    assert all(torch.allclose(w.params, start.mean(0)) for w in workers)


@pytest.mark.parametrize("kind", ["ring", "hoppingring"])
def test_what_a_worker_learnt_before_its_shard_was_used_up_stays(mover, kind):
    """The last exchange, in which only one worker has trained, still takes the mean over all."""
    workers = [mover(lambda w, k=k: torch.tensor([float(k)]), 3 if k == 0 else 2, torch.zeros(1)) for k in range(4)]
    run(workers, MaOptions(average_period=1, reduce_type=kind))
    assert [w.params.item() for w in workers] == pytest.approx([2 * (0 + 1 + 2 + 3) / 4] * 4)


def test_overlapping_means_arrive_a_period_late(mover):
    """As the formula says, with workers that go to a place of their own each; the mean is that of waiting, the spread is larger."""
    places = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    workers = [mover(lambda w, place=place: 0.2 * (place - w.params), 8, torch.ones(4, dtype=torch.float64)) for place in places]
    models = []
    host = Host(3)
    host.wish, host.on_safe_point = lambda: 1, lambda wish: models.append(torch.stack([w.params for w in workers]))
    strategies = run(workers, MaOptions(average_period=2, overlap=True), host)
    own, sent = torch.ones(3, 4, dtype=torch.float64), None
    for i in range(4):
        for _ in range(2):
            own = own + 0.2 * (places - own)
        if sent is not None:
            own = own + sent.mean(0) - sent
        sent = own
        if i < 3:
            assert torch.allclose(models[i], own)
    assert all(torch.allclose(worker.params, own.mean(0)) for worker in workers)
    assert all(strategy.state_dict() == {**NOTHING, "exchanges": 4} for strategy in strategies)
    with pytest.raises(UserError, match="--overlap true: only models"):
        MaOptions(overlap=True, reduce_type="ring")


def test_the_number_of_the_exchange_outlives_a_run(mover):
    strategy = Ma(MaOptions())
    strategy.load_state_dict({**NOTHING, "exchanges": 5})
    assert strategy.state_dict() == {**NOTHING, "exchanges": 5}


def test_what_it_cannot_do_is_said_in_words(mover):
    with pytest.raises(UserError, match="by allreduce only"):
        MaOptions(reduce_content="all", reduce_type="ring")
    with pytest.raises(UserError, match="power of two of workers, found 3"):
        run([mover(lambda w: torch.zeros(1), 1, torch.zeros(1)) for _ in range(3)], MaOptions(reduce_type="butterfly"))
