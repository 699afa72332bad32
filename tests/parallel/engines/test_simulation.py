"""The simulated clock: its times are the cluster's, and a run is a function of seed and cluster file, stopped and resumed or not."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch
from driven import Stopped, counted, epochs

from pykaldist.errors import UserError
from pykaldist.parallel.clusters.cluster import Cluster, Compute, Link, Pause, Workload
from pykaldist.parallel.clusters.costs import allreduce_seconds
from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.engines.simulation import Simulation
from pykaldist.parallel.planning.plan import predict
from pykaldist.parallel.strategies import bmuf, onebit
from pykaldist.parallel.strategies.adpsgd import PATTERNS, Adpsgd, AdpsgdOptions
from pykaldist.parallel.strategies.asgd import Asgd, AsgdOptions
from pykaldist.parallel.strategies.bmuf import Bmuf, BmufOptions
from pykaldist.parallel.strategies.hadpsgd import Hadpsgd, HadpsgdOptions
from pykaldist.parallel.strategies.local import Local
from pykaldist.parallel.strategies.ma import Ma, MaOptions
from pykaldist.parallel.strategies.onebit import Onebit, OnebitOptions
from pykaldist.parallel.strategies.ssgd import Ssgd

PARAMETERS, MINIBATCH = 13 * 8 + 9 * 5, 4  # of the workers of conftest.py
SYNCHRONOUS = {
    "local": Local, "ma": lambda: Ma(MaOptions(average_period=3)), "ring": lambda: Ma(MaOptions(average_period=2, reduce_type="ring")),
    "ma, overlap": lambda: Ma(MaOptions(average_period=2, overlap=True)), "bmuf": lambda: Bmuf(BmufOptions(average_period=3)),
    "ssgd": Ssgd, "onebit": lambda: Onebit(OnebitOptions())}
ASYNCHRONOUS = {
    "asgd": lambda: Asgd(AsgdOptions(server_momentum=0.3, gradient_decay=0.9)),
    "asgd, shards": lambda: Asgd(AsgdOptions(work="shards", max_distance=2, staleness_discount=True)),
    **{pattern: lambda pattern=pattern: Adpsgd(AdpsgdOptions(pattern=pattern)) for pattern in PATTERNS},
    "ring, shards": lambda: Adpsgd(AdpsgdOptions(work="shards"))}
GROUPS = {"groups": lambda: Hadpsgd(HadpsgdOptions(group_size=2, work="shards")),
          "groups, pairwise": lambda: Hadpsgd(HadpsgdOptions(group_size=2, pattern="pairwise")),
          "groups, delay-by-one": lambda: Hadpsgd(HadpsgdOptions(group_size=2, pattern="delay-by-one"))}


def cluster(seconds=1.0, spread=0.0, nodes=64, devices=1, bandwidth=4.0 * PARAMETERS / 0.1, latency=0.0, **given):
    """By default a model is a message of 0.1 s."""
    times = ("server_seconds", "load_seconds", "epoch_seconds", "memory_bandwidth")
    own = {name: given.pop(name) for name in times if name in given}
    compute = Compute(seconds, spread=spread, **own)
    return Cluster("test", "", nodes, devices, Workload("", PARAMETERS, MINIBATCH, 120), compute, between=Link(bandwidth, latency), **given)


def run(workers, strategies, host, count=2, learn_rate=0.01, stop=None):
    """Train; the log of each epoch that was begun here, and how many checkpoints were offered."""
    log = []
    offers = epochs(workers, strategies, host, count, learn_rate, stop,
                    lambda: log.append((host.elapsed(), host.spent(), host.notes(), host.disagreement)))
    return log, offers


@pytest.fixture
def begin(make_workers):
    """Workers of a size, a strategy for each, and a simulation."""

    def make(strategy, size, described, seed=0, minibatch_size=MINIBATCH, **options):
        workers = make_workers(size, minibatch_size=minibatch_size, **options)
        strategies = [strategy() for _ in workers]
        return workers, strategies, Simulation(size, described, seed)

    return make


def loaded(begun, states, clock):
    """Workers, strategies and host as just begun, with the states of others."""
    workers, strategies, host = begun
    for worker, strategy, (first, second) in zip(workers, strategies, states, strict=True):
        worker.load_state_dict(first)
        strategy.load_state_dict(second)
    host.load_state_dict(clock)
    return begun


def states_of(workers, strategies, host):
    return [(w.state_dict(), s.state_dict()) for w, s in zip(workers, strategies, strict=True)], host.state_dict()


@pytest.mark.parametrize("name", SYNCHRONOUS)
def test_a_synchronous_strategy_gives_the_same_model_with_a_clock_as_without(begin, name):
    workers, strategies, host = begin(SYNCHRONOUS[name], 5, cluster(spread=0.5, slow={"2": 3.0}), momentum=0.5)
    log, _ = run(workers, strategies, host)
    others, others_strategies, _ = begin(SYNCHRONOUS[name], 5, cluster(), momentum=0.5)
    run(others, others_strategies, Host(5))
    for one, other in zip(workers, others, strict=True):
        assert torch.equal(one.params, other.params) and torch.equal(one.totals, other.totals)
    assert all(seconds > 0 for seconds, *_ in log) and not any(notes for *_, notes, _ in log)


@pytest.mark.parametrize(("name", "period"), [("ssgd", None), ("ma", 3), ("local", None), ("bmuf", 3)])
@pytest.mark.parametrize("devices", [1, 2, 5])
def test_an_epoch_takes_what_the_planner_says(begin, name, period, devices):
    """Where nothing is random, shards are even, and minibatches full."""
    described = cluster(nodes=1 if devices == 5 else 2, devices=devices, within=Link(1e4, 1e-3), latency=0.01, load_seconds=0.25,
                        epoch_seconds=2.0, memory_bandwidth=PARAMETERS * 4.0 * 40)
    workers, strategies, host = begin(SYNCHRONOUS[name], 5, described)
    (seconds, spent, *_), _ = run(workers, strategies, host)[0]
    found = predict(described.workload, described, 5, name, period)
    assert seconds == pytest.approx(found.total)
    assert spent == pytest.approx([found.compute, found.exchange, 0.0, found.load])


def test_waiting_is_what_the_planner_expects(make_workers):
    """Of gradients summed every minibatch, with a normal spread, which a gamma distribution of a small one nearly is."""
    described = cluster(spread=0.05)
    host = Simulation(8, described)

    async def work(fabric):
        for _ in range(400):
            await fabric.compute(lambda: None)
            await fabric.sum(torch.zeros(1))

    host.begin_epoch()
    host.run([work(fabric) for fabric in host.fabrics])
    expected = predict(dataclasses.replace(described.workload, frames=400 * 8 * MINIBATCH), described, 8, "ssgd")
    _, _, wait, _ = host.spent()
    assert wait == pytest.approx(expected.wait, rel=0.05)


@pytest.mark.parametrize("name", [*ASYNCHRONOUS, *GROUPS])
def test_the_same_run_twice_and_stopped_and_resumed(begin, name):
    """At any moment that a checkpoint is offered, to the bit, logs included."""
    make = {**ASYNCHRONOUS, **GROUPS}[name]
    described = cluster(spread=0.4, nodes=2, devices=2, bandwidth=4.0 * PARAMETERS / 0.3, server_seconds=0.1, slow={"1": 2.5},
                        pauses=(Pause(0, 3.0, 2.0), Pause(2, 12.0, 4.0)))
    whole = begin(make, 4, described, momentum=0.5)
    log, offers = run(*whole)
    assert offers >= 12
    again = begin(make, 4, described, momentum=0.5)
    assert run(*again) == (log, offers)
    assert states_of(*whole)[1] == states_of(*again)[1]
    other_seed = begin(make, 4, described, seed=1, momentum=0.5)
    assert run(*other_seed)[0] != log
    for stop in range(1, offers + 1):
        part = begin(make, 4, described, momentum=0.5)
        with pytest.raises(Stopped):
            run(*part, stop=stop)
        states, clock = states_of(*part)
        resumed = loaded(begin(make, 4, described, momentum=0.5), states, clock)
        rest, _ = run(*resumed)
        assert rest == log[-len(rest) :]
        for one, other in zip(whole[0], resumed[0], strict=True):
            assert torch.equal(one.params, other.params) and torch.equal(one.optimizer.velocity, other.optimizer.velocity)
            assert torch.equal(one.totals, other.totals) and (one.updates, one.frames) == (other.updates, other.frames)
        assert resumed[2].state_dict() == whole[2].state_dict()


@pytest.mark.parametrize("name", ["ma", "ssgd", "bmuf", "ma, overlap", "onebit"])
def test_the_clock_of_a_synchronous_run_goes_on_too(begin, name):
    described = cluster(spread=0.4, slow={"1": 2.5}, memory_bandwidth=PARAMETERS * 4.0 * 100)
    whole = begin(SYNCHRONOUS[name], 3, described)
    log, offers = run(*whole)
    for stop in (1, offers // 2, offers):
        part = begin(SYNCHRONOUS[name], 3, described)
        with pytest.raises(Stopped):
            run(*part, stop=stop)
        states, clock = states_of(*part)
        resumed = loaded(begin(SYNCHRONOUS[name], 3, described), states, clock)
        rest, _ = run(*resumed)
        assert rest == log[-len(rest) :]


@pytest.mark.parametrize(("name", "size"), [*itertools.product(ASYNCHRONOUS, [1, 2, 3, 5, 8]), *itertools.product(GROUPS, [2, 4, 6])])
def test_every_frame_is_trained_on_once_an_epoch(begin, name, size):
    """By whoever it is; all end in one model."""
    strategy = {**ASYNCHRONOUS, **GROUPS}[name]
    workers, strategies, host = begin(strategy, size, cluster(spread=0.8, slow={"0": 3.0}), minibatch_size=5)
    seen = counted(workers)
    run(workers, strategies, host)
    assert seen == dict.fromkeys(range(120), 2)
    assert sum(worker.frames for worker in workers) == 120
    assert all(torch.equal(worker.params, workers[0].params) for worker in workers)


@pytest.mark.parametrize("name", ASYNCHRONOUS)
def test_one_worker_alone_is_sgd(begin, make_workers, train, name):
    workers, strategies, host = begin(ASYNCHRONOUS[name], 1, cluster(spread=0.5))
    if name == "asgd":
        strategies = [Asgd(AsgdOptions())]
    log, _ = run(workers, strategies, host)
    assert torch.allclose(workers[0].params, train(make_workers(minibatch_size=MINIBATCH), [Local()]), atol=2e-6)
    assert all(set(notes["staleness"]) == {"0"} for *_, notes, _ in log if notes)


def test_a_queue_gives_more_to_the_fast_and_shards_do_not(begin):
    shares = {}
    for name in ("ring", "ring, shards"):
        workers, strategies, host = begin(ASYNCHRONOUS[name], 4, cluster(slow={"3": 4.0}), minibatch_size=1)
        ((seconds, *_),), _ = run(workers, strategies, host, count=1)
        shares[name] = seconds, [worker.frames for worker in workers]
    second = 1 / MINIBATCH  # of a minibatch of one frame
    assert shares["ring, shards"][1] == [30] * 4 and shares["ring, shards"][0] >= 4 * 30 * second
    assert shares["ring"][0] < 1.3 * 120 / 3.25 * second and max(shares["ring"][1][:3]) > 3 * shares["ring"][1][3]


def test_minibatches_take_as_long_as_their_frames_and_their_worker():
    host = Simulation(3, cluster(spread=0.0, slow={"1": 2.0}, pauses=(Pause(2, 0.5, 3.0), Pause(2, 100.0, 1.0))))

    async def work(fabric):
        await fabric.compute(lambda: None)
        await fabric.total(0)

    host.begin_epoch()
    host.run([work(fabric) for fabric in host.fabrics])
    assert [fabric.seconds["compute"] for fabric in host.fabrics] == [1.0, 2.0, 1.0]
    assert [fabric.seconds["wait"] for fabric in host.fabrics] == [3.0, 2.0, 3.0]
    assert host.elapsed() == 4.0


def test_random_times_have_the_mean_and_the_spread_of_the_file():
    host = Simulation(2, cluster(seconds=0.5, spread=0.3))
    times = [[], []]

    async def work(fabric):
        before = 0.0
        for _ in range(4000):
            await fabric.compute(lambda: None)
            times[fabric.rank].append(fabric.seconds["compute"] - before)
            before = fabric.seconds["compute"]

    host.begin_epoch()
    host.run([work(fabric) for fabric in host.fabrics])
    found = torch.tensor(times[0])
    assert torch.corrcoef(torch.tensor(times))[0, 1].abs() < 0.05
    assert float(found.mean()) == pytest.approx(0.5, rel=0.02) and float(found.std()) == pytest.approx(0.15, rel=0.05)


def test_a_worker_that_is_called_in_turn_serves_one_call_after_the_other():
    """0.1 s a message each way, 0.2 s of service; who is impatient is told that it is busy."""
    host = Simulation(4, cluster(server_seconds=0.2))
    told = []

    async def work(fabric):
        if fabric.rank == 0:
            fabric.serve(lambda sender, buffer, value: (None, -1.0) if buffer is None else (buffer + 1, value))
        else:
            buffer, value = await fabric.answer(
                    await fabric.call_in_turn(0, torch.full((PARAMETERS,), 1.0), fabric.rank, patient=fabric.rank != 2))
            told.append((fabric.rank, value, None if buffer is None else float(buffer[0]), host._clock[fabric.rank]))
        await fabric.total(0)

    host.begin_epoch()
    host.run([work(fabric) for fabric in host.fabrics])
    assert told == [(2, -1.0, None, 0.0), (1, 1.0, 2.0, pytest.approx(0.4)), (3, 3.0, 2.0, pytest.approx(0.8))]
    assert host._calls.busy == host.elapsed() == pytest.approx(0.8)
    assert host.fabrics[3].seconds["wait"] == pytest.approx(0.4) and host.fabrics[3].seconds["exchange"] == pytest.approx(0.4)


def conversation(described, size, calls, seconds=0.0, echo=True):
    """`calls` of worker -> worker, all at 0.0 or after computing for that long: worker -> when it has its answer, the model or a number."""
    host, ended = Simulation(size, described), {}

    async def work(fabric):
        fabric.serve(lambda sender, buffer, value: (buffer if echo else None, value))
        if seconds:
            await fabric.compute(lambda: None)
        if fabric.rank in calls:
            await fabric.answer(await fabric.call(calls[fabric.rank], torch.zeros(PARAMETERS), 0.0))
            ended[fabric.rank] = pytest.approx(host._clock[fabric.rank] - seconds)
        await fabric.total(0)

    host.begin_epoch()
    host.run([work(fabric) for fabric in host.fabrics])
    return ended


@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_a_port_carries_one_message_at_a_time(seconds):
    """A message takes 0.1 s of a port and 0.01 s on the way; answers likewise."""
    apart = cluster(seconds=seconds or 1.0, latency=0.01)
    assert conversation(apart, 4, {1: 0, 3: 2}, seconds) == {1: 0.22, 3: 0.22}  # nothing in common
    assert conversation(apart, 2, {0: 1, 1: 0}, seconds) == {0: 0.22, 1: 0.22}  # both directions at once
    # Both are at worker 0 at 0.01. It has all of them at 0.11 and 0.21, and its answers leave at once.
    assert conversation(apart, 3, {1: 0, 2: 0}, seconds) == {1: 0.22, 2: 0.32}
    # Worker 1 has worker 0's message at 0.11 and worker 2's at 0.21, when its port is free for the answer to its own, which came at 0.12.
    assert conversation(apart, 3, {0: 1, 1: 2, 2: 1}, seconds) == {0: 0.22, 1: 0.31, 2: 0.32}


def test_the_devices_of_a_node_share_its_port_to_others_alone():
    """0.1 s between nodes, 0.02 s within."""
    described = cluster(nodes=2, devices=2, within=Link(4.0 * PARAMETERS / 0.02))
    assert conversation(described, 4, {0: 2}) == {0: 0.2}
    assert conversation(described, 4, {0: 2, 1: 3}) == {0: 0.2, 1: 0.3}
    assert conversation(described, 4, {0: 1, 2: 3}) == {0: 0.04, 2: 0.04}
    assert conversation(described, 4, {0: 1, 1: 2}) == {0: 0.04, 1: 0.2}
    assert conversation(described, 8, {0: 4, 2: 6}) == {0: 0.2, 2: 0.3}  # two workers a device
    three = dataclasses.replace(described, nodes=3)
    assert conversation(three, 6, {0: 2, 1: 4}, echo=False) == {0: 0.1, 1: 0.2}  # one sends to both others
    assert conversation(three, 6, {0: 4, 2: 5}, echo=False) == {0: 0.1, 2: 0.2}  # one hears from both


def test_when_all_exchange_the_fullest_port_sets_the_pace():
    """Two nodes of two devices: 0.1 s between nodes, 0.02 s within."""
    described = cluster(nodes=2, devices=2, within=Link(4.0 * PARAMETERS / 0.02), latency=0.01)
    for step, seconds in ((1, 0.11), (2, 0.21), (3, 0.11)):
        host = Simulation(4, described)

        async def work(fabric, step=step):
            got = await fabric.exchange(torch.full((PARAMETERS,), float(fabric.rank)), (fabric.rank + step) % 4, (fabric.rank - step) % 4)
            assert float(got[0]) == (fabric.rank - step) % 4

        host.begin_epoch()
        host.run([work(fabric) for fabric in host.fabrics])
        assert host.elapsed() == pytest.approx(seconds)


@pytest.mark.parametrize(("name", "passes", "rounds"), [("bmuf", sum(bmuf.PASSES), 2), ("onebit", sum(onebit.PASSES), 6)])
@pytest.mark.parametrize("nodes", [5, 2])
def test_a_filter_and_quantising_take_their_time_once_an_exchange(begin, name, passes, rounds, nodes):
    """120 frames, 5 workers, minibatches of 4, blocks of 3; the workers' momentum is averaged, too, which is no filter."""
    strategy = {"bmuf": lambda: Bmuf(BmufOptions(average_period=3, local_momentum="average")), "onebit": SYNCHRONOUS["onebit"]}[name]
    (without, *_), (with_it, *_) = (run(*begin(strategy, 5, cluster(nodes=nodes, **given)), count=1)[0][0]
                                    for given in ({}, {"memory_bandwidth": PARAMETERS * 4.0 * passes / 0.5}))
    assert with_it - without == pytest.approx(rounds * 0.5 * -(-5 // nodes))


def test_an_average_under_way_takes_no_time_that_computing_hides():
    described = cluster()
    host, ended = Simulation(4, described), {}

    async def work(fabric):
        for computes in (1, 0):
            ticket = await fabric.begin(fabric.mean(torch.full((PARAMETERS,), float(fabric.rank)), 1.0))
            for _ in range(computes):
                await fabric.compute(lambda: None)
            mean = await fabric.finish(ticket)
        ended[fabric.rank] = float(mean[0]), host._clock[fabric.rank]

    host.begin_epoch()
    host.run([work(fabric) for fabric in host.fabrics])
    seconds = allreduce_seconds(described, 4, 4 * PARAMETERS)
    assert seconds < 1.0 and ended == dict.fromkeys(range(4), (1.5, 1.0 + seconds))


def test_what_cannot_be_met_is_an_error():
    async def odd(fabric):
        if fabric.rank == 0:
            await fabric.total(1.0)
        else:
            await fabric.compute(lambda: None)

    host = Simulation(2, cluster())
    host.begin_epoch()
    with pytest.raises(RuntimeError, match="1 of 2 workers wait for Total"):
        host.run([odd(fabric) for fabric in host.fabrics])

    async def call(fabric):
        await fabric.answer(await fabric.call(1 - fabric.rank, torch.zeros(3), 0.0))

    host = Simulation(2, cluster())
    host.begin_epoch()
    with pytest.raises(RuntimeError, match="worker 0 calls worker 1, which serves nobody"):
        host.run([call(fabric) for fabric in host.fabrics])


def test_a_cluster_whose_straggler_is_no_worker_is_refused():
    with pytest.raises(UserError, match="has a slow, pausing or failing worker 4, but room for 4"):
        Simulation(2, cluster(slow={"4": 2.0}, nodes=4))
    for size, worker in ((2, "3"), (5, "4")):  # one that is left out; one that shares a device
        assert Simulation(size, cluster(slow={worker: 2.0}, nodes=4)).size == size


@pytest.mark.parametrize(("name", "most"), [("asgd", 1.15), ("ring", 1.15), ("random-ring", 1.15), ("pairwise", 1.15), ("ssgd", 4.0)])
def test_a_straggler_holds_up_the_synchronous_alone(begin, make_store, name, most):
    """One of 16 workers takes four times as long: the seconds of an epoch of 60 minibatches a worker, over those without it."""
    strategy, store = {**SYNCHRONOUS, **ASYNCHRONOUS}[name], make_store([960], name="large")
    seconds = []
    for slow in ({}, {"5": 4.0}):
        ((elapsed, *_),), _ = run(*begin(strategy, 16, cluster(bandwidth=1e6, spread=0.05, slow=slow), minibatch_size=1, store=store), 1)
        seconds.append(elapsed)
    assert most - (0.5 if name == "ssgd" else 0.15) < seconds[1] / seconds[0] < most
