"""BMUF: model averaging where it has no memory, its gain, and the formulas written out."""

from __future__ import annotations

import pytest
import torch

from pykaldist.errors import UserError
from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.strategies.bmuf import Bmuf, BmufOptions
from pykaldist.parallel.strategies.ma import Ma, MaOptions


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize(("size", "local"), [(1, "keep"), (2, "keep"), (3, "average"), (5, "keep")])
def test_without_memory_it_is_model_averaging(make_workers, train, size, local, nesterov):
    options = BmufOptions(3, block_momentum=0.0, nesterov=nesterov, local_momentum=local)
    bmuf = train(make_workers(size, momentum=0.9, minibatch_size=4), [Bmuf(options) for _ in range(size)])
    content = "all" if local == "average" else "model"
    ma = train(make_workers(size, momentum=0.9, minibatch_size=4), [Ma(MaOptions(3, reduce_content=content)) for _ in range(size)])
    assert torch.allclose(bmuf, ma, atol=1e-6)


def begin(mover, move, size, options, steps=200, start=None):
    workers = [mover(move, steps, torch.zeros(3, dtype=torch.float64) if start is None else start) for _ in range(size)]
    host, strategies = Host(size), [Bmuf(options) for _ in range(size)]
    work = [s.epoch(w, fabric) for s, w, fabric in zip(strategies, workers, host.fabrics, strict=True)]
    return workers, strategies, lambda: host.run(work), host


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize(("eta", "zeta", "size"), [(0.9, 1.0, 4), (0.75, 0.5, 2), (0.0, 2.0, 3)])
def test_a_steady_move_is_amplified_by_the_gain(mover, nesterov, eta, zeta, size):
    """m a block from each worker: zeta m / (1 - eta) a block of the model."""
    move = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    options = BmufOptions(2, block_momentum=eta, block_learning_rate=zeta, nesterov=nesterov)
    workers, strategies, run, host = begin(mover, lambda w: move / 2, size, options, 400)
    models = []
    host.wish, host.on_safe_point = lambda: 1, lambda wish: models.append(workers[0].params.clone())
    run()
    expected = zeta * move / (1 - eta)
    assert torch.allclose(models[-1] - models[-2], expected) and torch.allclose(strategies[0].delta, expected)
    assert dict(strategies[0].contract(size, 256))["block momentum"].endswith(f"gain C = {zeta / (size * (1 - eta)):.3g}")


@pytest.mark.parametrize("nesterov", [True, False])
def test_statistics_are_averaged_and_have_no_momentum(mover, nesterov):
    move = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    workers, _, run, host = begin(mover, lambda w: move / 2, 3, BmufOptions(2, block_momentum=0.9, nesterov=nesterov))
    for worker in workers:
        worker.statistics = [slice(1, 2)]
    models = []
    host.wish, host.on_safe_point = lambda: 1, lambda wish: models.append(workers[0].params.clone())
    run()
    assert torch.allclose(models[-1] - models[-2], torch.tensor([10.0, -2.0, 5.0], dtype=torch.float64), rtol=1e-3)


@pytest.mark.parametrize("nesterov", [True, False])
def test_it_is_what_its_formulas_say(mover, nesterov):
    """Workers that go to a place of their own each, with the symbols of Chen & Huo; validated and saved is W, not the look-ahead."""
    eta, zeta, size = 0.6, 0.8, 3
    places = torch.randn(size, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    options = BmufOptions(2, block_momentum=eta, block_learning_rate=zeta, nesterov=nesterov)
    workers, _, run, _ = begin(mover, lambda w: 0.1 * (w.place - w.params), size, options, 12, torch.ones(3, dtype=torch.float64))
    for worker, place in zip(workers, places, strict=True):
        worker.place = place
    run()
    w = wg = torch.ones(3, dtype=torch.float64)
    delta = torch.zeros(3, dtype=torch.float64)
    for _ in range(6):
        ends = []
        for place in places:
            own = wg
            for _ in range(2):
                own = own + 0.1 * (place - own)
            ends.append(own)
        g = torch.stack(ends).mean(0) - wg
        delta = eta * delta + zeta * g
        w = w + delta
        wg = w + eta * delta if nesterov else w
    assert all(torch.allclose(worker.params, w) for worker in workers)


@pytest.mark.parametrize(("local", "expected"), [("keep", [1.0, 3.0]), ("reset", [0.0, 0.0]), ("average", [2.0, 2.0])])
def test_the_workers_own_momentum_at_a_blocks_end(mover, local, expected):
    def move(worker):
        worker.optimizer.velocity.fill_(worker.place)
        return torch.zeros(3, dtype=torch.float64)

    workers, _, run, _ = begin(mover, move, 2, BmufOptions(1, local_momentum=local), 3)
    for worker, place in zip(workers, (1.0, 3.0), strict=True):
        worker.place = place
    run()
    assert [w.optimizer.velocity[0].item() for w in workers] == expected


def test_the_block_momentum_follows_from_the_gain():
    assert BmufOptions().momentum(16) == pytest.approx(0.9375)
    assert BmufOptions(block_gain=2.0, block_learning_rate=0.5).momentum(4) == pytest.approx(1 - 0.5 / 8)
    assert BmufOptions().momentum(1) == 0.0 and BmufOptions(block_gain=0.1).momentum(2) == 0.0
    assert BmufOptions(block_momentum=0.3).momentum(16) == 0.3


def test_after_a_rejected_epoch_the_filter_starts_anew(mover):
    _, (strategy, _), run, _ = begin(mover, lambda w: torch.ones(3, dtype=torch.float64), 2, BmufOptions(), 20)
    run()
    assert strategy.state_dict()["delta"].abs().sum() > 0
    strategy.rejected()
    assert strategy.state_dict() == {"delta": None, "remainders": None}


@pytest.mark.parametrize(("options", "words"), [
    ({"block_momentum": 1.0}, "--block-momentum 1 is outside"), ({"block_learning_rate": 0.0}, "--block-learning-rate 0 is not positive"),
    ({"block_gain": -1.0}, "--block-gain -1 is not positive"), ({"block_gain": 1.0, "block_momentum": 0.5}, "exclude each other"),
    ({"average_period": -1}, "--average-period -1 is negative")])
def test_options_out_of_range_are_refused(options, words):
    with pytest.raises(UserError, match=words):
        BmufOptions(**options)
