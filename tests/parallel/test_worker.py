"""The worker: two ways to make a step agree, and all of it is in its state."""

from __future__ import annotations

import pytest
import torch

from pykaldist.frames.sampler import Partition, Sampler
from pykaldist.nnet.dnn import DnnOptions, make_dnn
from pykaldist.nnet.init import init_dnn
from pykaldist.nnet.learner import Supervised
from pykaldist.nnet.objective import CrossEntropy
from pykaldist.optim.sgd import Sgd, SgdOptions
from pykaldist.parallel.host import Host
from pykaldist.parallel.strategies.local import Local
from pykaldist.parallel.strategies.ma import Ma, MaOptions
from pykaldist.parallel.strategies.ssgd import Ssgd
from pykaldist.parallel.strategy import Strategy, make_strategy, strategies
from pykaldist.parallel.worker import Worker


@pytest.fixture
def make_worker(make_store):
    store = make_store([40, 30, 50])

    def make(**options: float) -> Worker:
        shape = DnnOptions(1, 8, "tanh")
        model = make_dnn(shape, 12, 5)
        init_dnn(model, shape, torch.Generator().manual_seed(0))
        sampler = Sampler(store, Partition(store), 0, 16, [-1, 0, 1], torch.zeros(12), torch.ones(12), 0, torch.device("cpu"))
        return Worker(Sgd(Supervised(model, CrossEntropy()), SgdOptions(**options)), sampler)

    return make


def train(worker, strategy, epochs=2):
    host = Host()
    for epoch in range(epochs):
        worker.begin_epoch(epoch, 0.01)
        host.run([strategy.epoch(worker, host.fabrics[0])])
    assert host.fabrics[0].seconds["compute"] > 0
    return worker.params


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}, {"l2_penalty": 0.01}])
def test_gradients_shipped_equal_local_steps(make_worker, options):
    assert torch.allclose(train(make_worker(**options), Ssgd()), train(make_worker(**options), Local()), atol=1e-6)


def test_the_average_over_one_worker_is_its_model(make_worker):
    assert torch.equal(train(make_worker(), Ma(MaOptions(average_period=3))), train(make_worker(), Local()))


def test_every_strategy_is_found_by_its_name():
    assert {"local", "ma", "bmuf", "ssgd", "onebit"} <= set(strategies())
    for name in strategies():
        assert isinstance(make_strategy(name), Strategy)


def test_workers_that_ask_for_different_things_are_an_error(make_worker):
    class Odd(Strategy):
        async def epoch(self, worker, fabric):
            if fabric.rank == 0:
                await fabric.total(1.0)
            else:
                await fabric.sum(worker.params)

    host = Host(2)
    with pytest.raises(RuntimeError, match="2 of 2 workers wait for Sum, Total"):
        host.run([Odd().epoch(make_worker(), fabric) for fabric in host.fabrics])


def test_a_worker_is_its_state(make_worker):
    one, other = make_worker(momentum=0.9), make_worker(momentum=0.9)
    train(one, Local(), 1)
    other.load_state_dict(one.state_dict())
    host = Host()
    for worker in (one, other):
        worker.begin_epoch(1, 0.02)
        host.run([Local().epoch(worker, host.fabrics[0])])
    assert torch.equal(one.params, other.params) and one.updates == other.updates == 16
    assert torch.equal(one.totals, other.totals)


def test_a_rate_that_moves_is_asked_for_at_each_minibatch(make_worker):
    rates, worker, host = [], make_worker(), Host()
    worker.on_step = lambda: rates.append(worker.learn_rate)
    worker.begin_epoch(0, 0.1, lambda fraction: 0.1 + fraction)
    host.run([Local().epoch(worker, host.fabrics[0])])
    assert rates == pytest.approx([0.1 + i / 8 for i in range(8)])
    worker.begin_epoch(1, 0.5)
    host.run([Local().epoch(worker, host.fabrics[0])])
    assert rates[8:] == [0.5] * 8
