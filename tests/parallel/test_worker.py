"""Worker, strategy and fabric: the nouns fit together, and two ways to make a step agree."""

from __future__ import annotations

import pytest
import torch

from pykaldist.frames.sampler import Partition, Sampler
from pykaldist.nnet.dnn import DnnOptions, make_dnn
from pykaldist.nnet.init import init_dnn
from pykaldist.nnet.learner import Supervised
from pykaldist.nnet.objective import CrossEntropy
from pykaldist.optim.sgd import Sgd, SgdOptions
from pykaldist.parallel.fabrics.single import Single
from pykaldist.parallel.strategies.local import Local
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


class ShipGradients(Strategy):
    """What a strategy that exchanges gradients does, over one worker."""

    async def epoch(self, worker, fabric):
        async for _ in worker.minibatches():
            gradient, frames = await fabric.compute(worker.gradient)
            await fabric.average(gradient, frames)
            worker.apply(gradient, frames)


class AverageModels(Strategy):
    """Model averaging with period 3."""

    def __init__(self):
        self.frames = []

    async def epoch(self, worker, fabric):
        async for step in worker.minibatches():
            await fabric.compute(worker.step)
            if step.index % 3 == 0 or step.last:
                await fabric.average(worker.params, step.frames_since_sync)
                self.frames.append(step.frames_since_sync)
                worker.synced()


def train(worker, strategy, epochs=2):
    fabric = Single()
    for epoch in range(epochs):
        worker.begin_epoch(epoch, 0.01)
        fabric.run(strategy.epoch(worker, fabric))
    assert fabric.compute_seconds > 0
    return worker.params


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}, {"l2_penalty": 0.01}])
def test_gradients_shipped_equal_local_steps(make_worker, options):
    assert torch.allclose(train(make_worker(**options), ShipGradients()), train(make_worker(**options), Local()), atol=1e-6)


def test_the_average_over_one_worker_is_its_model(make_worker):
    strategy = AverageModels()
    assert torch.equal(train(make_worker(), strategy), train(make_worker(), Local()))
    assert strategy.frames == [48, 48, 24] * 2  # minibatches of 16 in 120 frames


def test_every_strategy_is_found_by_its_name():
    assert "local" in strategies()
    for name in strategies():
        assert isinstance(make_strategy(name), Strategy)


def test_a_strategy_that_waits_for_nobody_is_an_error(make_worker):
    class Never(Strategy):
        async def epoch(self, worker, fabric):
            await Forever()

    class Forever:
        def __await__(self):
            yield

    with pytest.raises(RuntimeError, match="there is none"):
        Single().run(Never().epoch(make_worker(), Single()))


def test_a_worker_is_its_state(make_worker):
    one, other = make_worker(momentum=0.9), make_worker(momentum=0.9)
    train(one, Local(), 1)
    other.load_state_dict(one.state_dict())
    for worker in (one, other):
        worker.begin_epoch(1, 0.02)
        Single().run(Local().epoch(worker, Single()))
    assert torch.equal(one.params, other.params) and one.updates == other.updates == 16
    assert torch.equal(one.totals, other.totals)


def test_a_rate_that_moves_is_asked_for_at_each_minibatch(make_worker):
    class Watch(Local):
        async def epoch(self, worker, fabric):
            async for _ in worker.minibatches():
                await fabric.compute(worker.step)
                rates.append(worker.learn_rate)

    rates, worker = [], make_worker()
    worker.begin_epoch(0, 0.1, lambda fraction: 0.1 + fraction)
    Single().run(Watch().epoch(worker, Single()))
    assert rates == pytest.approx([0.1 + i / 8 for i in range(8)])
    worker.begin_epoch(1, 0.5)
    Single().run(Watch().epoch(worker, Single()))
    assert rates[8:] == [0.5] * 8
