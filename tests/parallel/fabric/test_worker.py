"""The worker: two ways to make a step agree, and all of it is in its state."""

from __future__ import annotations

import pytest
import torch

from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.strategies.local import Local
from pykaldist.parallel.strategies.onebit import Onebit, OnebitOptions
from pykaldist.parallel.strategies.ssgd import Ssgd


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}, {"l2_penalty": 0.01}])
def test_gradients_shipped_equal_local_steps(make_workers, train, options):
    shipped, stepped = (train(make_workers(**options), [strategy()]) for strategy in (Ssgd, Local))
    assert torch.allclose(shipped, stepped, atol=1e-6)


def test_a_worker_is_its_state(make_workers, train):
    (one,), (other,) = make_workers(momentum=0.9), make_workers(momentum=0.9)
    train([one], [Local()], 1)
    other.load_state_dict(one.state_dict())
    host = Host()
    for worker in (one, other):
        worker.begin_epoch(1, 0.02)
        host.run([Local().epoch(worker, host.fabrics[0])])
    assert torch.equal(one.params, other.params) and one.updates == other.updates == 16
    assert torch.equal(one.totals, other.totals)


def test_a_rate_that_moves_is_asked_for_at_each_minibatch(make_workers):
    rates, (worker,), host = [], make_workers(), Host()
    worker.on_step = lambda: rates.append(worker.learn_rate)
    worker.begin_epoch(0, 0.1, lambda fraction: 0.1 + fraction)
    host.run([Local().epoch(worker, host.fabrics[0])])
    assert rates == pytest.approx([0.1 + i / 8 for i in range(8)])
    worker.begin_epoch(1, 0.5)
    host.run([Local().epoch(worker, host.fabrics[0])])
    assert rates[8:] == [0.5] * 8


@pytest.mark.parametrize("make", [Ssgd, lambda: Onebit(OnebitOptions())], ids=["ssgd", "onebit"])
def test_a_rate_that_moves_is_the_same_for_all_that_share_gradients(make_workers, make):
    """However many minibatches are theirs: 13, 10 and 8 here, the last ones of an empty-handed worker included."""
    workers, host = make_workers(3, minibatch_size=4, level="utterance"), Host(3)
    rates = [[] for _ in workers]
    for worker, own in zip(workers, rates, strict=True):
        apply = worker.optimizer.apply
        worker.optimizer.apply = lambda gradient, rate, frames, own=own, apply=apply: own.append(rate) or apply(gradient, rate, frames)
        worker.begin_epoch(0, 0.1, lambda fraction: 0.01 + 0.01 * fraction)
    assert sorted(worker.remaining for worker in workers) == [8, 10, 13]
    host.run([make().epoch(worker, fabric) for worker, fabric in zip(workers, host.fabrics, strict=True)])
    assert rates == [pytest.approx([0.01 + 0.01 * i / 13 for i in range(13)])] * 3
    assert all(torch.equal(worker.params, workers[0].params) for worker in workers)
