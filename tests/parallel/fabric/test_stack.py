"""Stacked workers: the same as one after the other, whatever their strategy; and what is made together, and what is not."""

from __future__ import annotations

import contextlib

import pytest
import torch
from driven import Stopped, epochs

from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.fabric.stack import Stack
from pykaldist.parallel.fabric.worker import Worker
from pykaldist.parallel.strategies.base.registry import make_strategy, strategies, strategy_class, strategy_options

SIZE = 3  # of 120 frames, so that minibatches of 16 leave one of 8 a worker; of 119, one has 7
IN_STEP = [name for name in strategies() if not strategy_class(name).asynchronous]
OPTIONS = {"ma": {"average_period": 2}, "bmuf": {"average_period": 2, "local_momentum": "average"}, "easgd": {"average_period": 2},
           "diloco": {"average_period": 2, "fragments": 2}}


@pytest.fixture
def run(make_workers):
    """`run(strategy, stacked, stop, resume, ...)`: (workers, strategies, steps made together), after two epochs, in float64."""

    def work(strategy, stacked, stop=None, state=None, learn_rate=0.01, rate_at=None, minibatch_size=16, own=None, dtype=torch.float64,
             **options):
        workers = make_workers(SIZE, minibatch_size=minibatch_size, dtype=dtype, **options)
        chosen = strategy_options(strategy)(**(OPTIONS.get(strategy, {}) if own is None else own))
        made = [make_strategy(strategy, chosen) for _ in workers]
        host, together = Host(SIZE), []
        if stacked:
            stack = Stack(workers, made[0].ships_gradients)
            for kind in ("step_each", "gradient_of_each"):
                one = getattr(stack._optimizer, kind)
                setattr(stack._optimizer, kind, lambda *given, one=one: (together.append(1), one(*given)))
            host.stack_workers(stack)
        for worker, strat, (of_worker, of_strategy) in zip(workers, made, state or [], strict=False):
            worker.load_state_dict(of_worker)
            strat.load_state_dict(of_strategy)
        with contextlib.suppress(Stopped):
            epochs(workers, made, host, learn_rate=learn_rate, stop=stop)
        return workers, made, len(together)

    return work


def assert_close(found, expected, tolerance=1e-12):
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one.params, other.params, rtol=0, atol=tolerance)
        assert torch.allclose(one.optimizer.velocity, other.optimizer.velocity, rtol=0, atol=tolerance)
        assert torch.allclose(one.totals, other.totals, rtol=max(tolerance, 1e-9))
        assert (one.frames, one.updates, one.index) == (other.frames, other.updates, other.index)


@pytest.mark.parametrize("momentum", [0.0, 0.5])
@pytest.mark.parametrize("strategy", IN_STEP)
def test_stacked_workers_train_as_one_after_the_other(run, strategy, momentum):
    expected, _, _ = run(strategy, False, momentum=momentum)
    found, _, together = run(strategy, True, momentum=momentum)
    assert_close(found, expected)
    assert together == 4  # of an epoch's three minibatches of a worker, the last one is not full
    assert not torch.equal(found[0].totals, found[1].totals)


@pytest.mark.parametrize("strategy", ["ma", "ssgd"])
def test_in_single_precision_to_1e_6(run, strategy):
    expected, _, _ = run(strategy, False, momentum=0.5, dtype=torch.float32)
    found, _, _ = run(strategy, True, momentum=0.5, dtype=torch.float32)
    assert_close(found, expected, 1e-6)


@pytest.mark.parametrize("penalty", [{"l2_penalty": 1e-3}, {"l1_penalty": 1e-3}, {"max_norm": 0.5}])
@pytest.mark.parametrize("strategy", ["ma", "ssgd"])
def test_penalties_are_each_models_own(run, strategy, penalty):
    expected, _, _ = run(strategy, False, momentum=0.3, **penalty)
    found, _, _ = run(strategy, True, momentum=0.3, **penalty)
    assert_close(found, expected)
    assert not torch.allclose(found[0].params, run(strategy, True, momentum=0.3)[0][0].params, atol=1e-6)


def test_all_last_minibatches_of_unequal_size(run, make_store):
    """40 frames a worker but for one, which has 39: in minibatches of 8, its last one is smaller."""
    store = make_store([40, 30, 49], name="uneven")
    expected, _, _ = run("ma", False, minibatch_size=8, store=store)
    found, _, together = run("ma", True, minibatch_size=8, store=store)
    assert_close(found, expected)
    assert together == 2 * 4 and sorted(worker.frames for worker in found) == [39, 40, 40]


def test_a_worker_with_a_minibatch_less_waits(run, make_store):
    store = make_store([40, 30, 51], name="uneven")  # 40, 40 and 41 frames
    expected, _, _ = run("ma", False, minibatch_size=8, store=store)
    found, _, together = run("ma", True, minibatch_size=8, store=store)
    assert_close(found, expected)
    assert together == 2 * 5 and sorted(worker.updates for worker in found) == [10, 10, 12]


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_each_worker_has_its_own_rate(run, make_store, monkeypatch, momentum):
    """A rate that moves within the epoch moves by each worker's own minibatches."""
    begin = Worker.begin_epoch
    monkeypatch.setattr(Worker, "begin_epoch", lambda worker, epoch, rate: begin(worker, epoch, rate, lambda part: rate * (1.0 - part / 2)))
    store = make_store([40, 30, 51], name="uneven")
    expected, _, _ = run("ma", False, minibatch_size=8, store=store, momentum=momentum)
    found, _, together = run("ma", True, minibatch_size=8, store=store, momentum=momentum)
    assert len({worker.learn_rate for worker in found}) > 1
    assert_close(found, expected)
    assert together == 2 * 5


@pytest.mark.parametrize("strategy", ["ma", "bmuf", "ssgd", "onebit"])
@pytest.mark.parametrize("stop", [1, 2])
def test_resumed_from_a_checkpoint_as_if_it_had_not_been_stopped(run, strategy, stop):
    expected, _, _ = run(strategy, True, momentum=0.5)
    workers, made, _ = run(strategy, True, stop=stop, momentum=0.5)
    state = [(worker.state_dict(), one.state_dict()) for worker, one in zip(workers, made, strict=True)]
    found, _, _ = run(strategy, True, state=state, momentum=0.5)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one.params, other.params) and torch.equal(one.totals, other.totals)
        assert torch.equal(one.optimizer.velocity, other.optimizer.velocity)


def test_workers_that_begin_again_are_taken_in(make_workers):
    """Without their momentum, as after divergence."""
    found = []
    for stacked in (False, True):
        workers = make_workers(SIZE, momentum=0.5, dtype=torch.float64)
        host = Host(SIZE)
        if stacked:
            host.stack_workers(Stack(workers))
        for _ in range(2):
            for worker in workers:
                worker.restart()
                assert not worker.optimizer.velocity.any()
            made = [make_strategy("ma", strategy_options("ma")(average_period=2)) for _ in workers]
            epochs(workers, made, host, 1)
            for worker in workers:
                worker.epoch = 0
        assert all(worker.optimizer.velocity.any() for worker in workers)
        found.append(workers)
    assert_close(found[1], found[0])


def test_other_work_is_done_one_after_the_other(run):
    """Nesterov's momentum of EAMSGD, which stands around each step."""
    own = {"average_period": 2, "local_nesterov": 0.5}
    expected, _, _ = run("easgd", False, own=own)
    found, _, together = run("easgd", True, own=own)
    assert_close(found, expected)
    assert together == 0
