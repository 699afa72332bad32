"""The worker: two ways to make a step agree, and all of it is in its state."""

from __future__ import annotations

import pytest
import torch

from pykaldist.parallel.host import Host
from pykaldist.parallel.strategies.local import Local
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
