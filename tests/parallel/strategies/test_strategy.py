"""What all strategies have in common: rounds, uneven shards, one worker alone, a state that goes on."""

from __future__ import annotations

import pytest
import torch
from driven import counted

from pykaldist.errors import UserError
from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.strategies.base.registry import make_strategy, strategies
from pykaldist.parallel.strategies.base.strategy import PeriodOptions, Strategy
from pykaldist.parallel.strategies.bmuf import Bmuf, BmufOptions
from pykaldist.parallel.strategies.local import Local
from pykaldist.parallel.strategies.ma import Ma, MaOptions
from pykaldist.parallel.strategies.onebit import Onebit, OnebitOptions
from pykaldist.parallel.strategies.ssgd import Ssgd

MAKERS = {
    "local": Local,
    "ma": lambda: Ma(MaOptions(average_period=3)),
    "ma in blocks": lambda: Ma(MaOptions(average_period=0)),
    "ma, momentum too": lambda: Ma(MaOptions(average_period=3, reduce_content="all")),
    "ma, overlapping": lambda: Ma(MaOptions(average_period=2, overlap=True)),
    "ring": lambda: Ma(MaOptions(average_period=2, reduce_type="ring")),
    "hoppingring": lambda: Ma(MaOptions(average_period=2, reduce_type="hoppingring")),
    "bmuf": lambda: Bmuf(BmufOptions(average_period=3)),
    "bmuf in blocks": lambda: Bmuf(BmufOptions(average_period=0, nesterov=False)),
    "bmuf, momentum too": lambda: Bmuf(BmufOptions(average_period=3, local_momentum="average")),
    "ssgd": Ssgd,
    "onebit": lambda: Onebit(OnebitOptions()),
}


@pytest.fixture(params=MAKERS)
def make(request):
    return MAKERS[request.param]


@pytest.mark.parametrize(("size", "blocks", "level"), [(1, 1, "frame"), (2, 3, "frame"), (3, 1, "utterance"), (4, 2, "frame"),
                                                       (5, 3, "frame"), (6, 1, "frame"), (7, 2, "frame")])
def test_every_frame_is_trained_on_once_an_epoch(make_workers, train, make, size, blocks, level):
    """However uneven the shards; and all end in one model."""
    workers = make_workers(size, blocks=blocks, minibatch_size=5, level=level)
    seen = counted(workers)
    train(workers, [make() for _ in workers], 1, 0.001)
    assert seen == dict.fromkeys(range(120), 1)
    assert sum(worker.frames for worker in workers) == 120
    train(workers, [make() for _ in workers], 2, 0.001)
    assert seen == dict.fromkeys(range(120), 3 if seen[0] == 3 else 2)


@pytest.mark.parametrize("processes", [2, 3])
def test_any_number_of_processes_gives_the_same(make_workers, train, make, job, processes):
    def work(host):
        workers = make_workers(5, host.ranks, minibatch_size=4, blocks=2, momentum=0.5)
        params = train(workers, [make() for _ in workers], 2, 0.01, host)
        return [(params, worker.totals, worker.optimizer.velocity) for worker in workers]

    for one, other in zip(job(5, 1, work), job(5, processes, work), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    for (one, *_), (other, *_) in zip(job(5, 1, work, False), job(5, processes, work, False), strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}, {"optimizer": "ngsgd", "momentum": 0.5}], ids=["sgd", "momentum", "ngsgd"])
def test_one_worker_alone_is_serial_training(make_workers, train, make, options):
    expected = train(make_workers(**options), [Local()])
    strategy = make()
    if isinstance(strategy, Bmuf):
        strategy.options.local_momentum = "keep"
    assert torch.allclose(train(make_workers(**options), [strategy]), expected, atol=2e-6)


def test_64_virtual_workers(make_workers, train, make):
    workers = make_workers(64, minibatch_size=1)
    start = workers[0].params.clone()
    params = train(workers, [make() for _ in workers], 1, 1e-3)
    assert torch.isfinite(params).all() and not torch.equal(params, start)


@pytest.mark.parametrize("size", [2, 3])
def test_stopped_at_any_safe_point_it_goes_on_as_if_it_were_not(make_workers, make, size):
    """From what the states of workers and strategies say, to the bit; the last round of an epoch has none, for the epoch's end is next."""
    class Stopped(Exception):
        pass

    def begin(states=None):
        workers, strategies = make_workers(size, blocks=2, minibatch_size=4, momentum=0.5), [make() for _ in range(size)]
        for worker, strategy, (first, second) in zip(workers, strategies, states or [], strict=bool(states)):
            worker.load_state_dict(first)
            strategy.load_state_dict(second)
        return workers, strategies

    def go_on(workers, strategies, stop=None):
        host, passed = Host(size), 0

        def on_safe_point(wish):
            nonlocal passed
            passed += 1
            if passed == stop:
                raise Stopped

        host.wish, host.on_safe_point = lambda: 1, on_safe_point
        for epoch in range(workers[0].epoch, 2):
            for worker in workers:
                worker.begin_epoch(epoch, 0.01)
            host.run([s.epoch(w, fabric) for s, w, fabric in zip(strategies, workers, host.fabrics, strict=True)])
            for worker in workers:
                assert worker.remaining == 0
        return passed

    whole = begin()
    points = go_on(*whole)
    assert points >= 2 or isinstance(whole[1][0], Local)
    for stop in {min(1, points), points // 2, points} - {0}:
        part = begin()
        with pytest.raises(Stopped):
            go_on(*part, stop)
        states = [(w.state_dict(), s.state_dict()) for w, s in zip(*part, strict=True)]
        resumed = begin(states)
        go_on(*resumed)
        for one, other in zip(whole[0], resumed[0], strict=True):
            assert torch.equal(one.params, other.params) and torch.equal(one.optimizer.velocity, other.optimizer.velocity)
            assert torch.equal(one.totals, other.totals) and (one.updates, one.frames) == (other.updates, other.frames)


def test_periods_in_minibatches_and_frames():
    assert PeriodOptions().minibatches(256) == 10
    assert PeriodOptions(average_frames=1000).minibatches(256) == 4
    assert PeriodOptions(average_period=0).minibatches(256) == 0
    for wrong in ({"average_period": -1}, {"average_frames": -1}):
        with pytest.raises(UserError, match="is negative"):
            PeriodOptions(**wrong)


@pytest.mark.parametrize(("options", "rounds"), [
    ({"average_period": 3}, [[3, 3, 3, 1], [3, 3, 3, 0]]), ({"average_frames": 17}, [[5, 5], [5, 4]]),
    ({"average_period": 100}, [[10], [9]]), ({"average_period": 0}, [[4, 3, 3], [3, 3, 3]])])
def test_rounds_are_as_many_for_every_worker(make_workers, options, rounds):
    """44 and 36 frames, where it is utterances that are dealt out, in minibatches of 4 or less."""
    found = []

    class Counting(Strategy):
        async def epoch(self, worker, fabric):
            own = []
            period = PeriodOptions(**options).minibatches(4)
            async for round in self.rounds(worker, fabric, period):
                own.append(round.minibatches)
                for _ in range(round.minibatches):
                    worker.step()
                assert round.last == (len(own) == len(rounds[0]))
            found.append(own)

    workers = make_workers(2, minibatch_size=4)
    blocks = 3 if options == {"average_period": 0} else 1
    for worker, sizes in zip(workers, ([13, 12, 12], [12, 12, 11]) if blocks == 3 else ([37], [36]), strict=True):
        worker.sampler = FakeSampler(worker.sampler, sizes)
        worker.begin_epoch(0, 0.0)
    host = Host(2)
    host.run([Counting().epoch(worker, fabric) for worker, fabric in zip(workers, host.fabrics, strict=True)])
    assert found == rounds


class FakeSampler:
    """A sampler of blocks of these sizes, drawn in order, that gives the same minibatch always."""

    def __init__(self, sampler, sizes):
        self.minibatch_size, self._counts = 4, [-(-n // 4) for n in sizes]
        self._minibatch = next(sampler.epoch(0))

    @property
    def minibatches(self):
        return sum(self._counts)

    def block_ends(self, epoch):
        return [sum(self._counts[: i + 1]) for i in range(len(self._counts))]

    def epoch(self, epoch, start=0):
        for _ in range(start, self.minibatches):
            yield self._minibatch


def test_every_strategy_is_found_by_its_name():
    assert {"local", "ma", "bmuf", "ssgd", "onebit"} <= set(strategies())
    for name in strategies():
        assert isinstance(make_strategy(name), Strategy)


def test_a_strategy_takes_no_state_of_another():
    with pytest.raises(AssertionError, match="Ssgd keeps \\['remainders'\\], found \\['delta'\\]"):
        Ssgd().load_state_dict({"delta": None})
