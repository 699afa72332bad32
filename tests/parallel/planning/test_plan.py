"""The planner's model: against published tables, a ring carried out step by step, and epochs drawn at random."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.errors import UserError
from pykaldist.nnet.dnn import DnnOptions, make_dnn
from pykaldist.parallel.clusters.cluster import Allreduce, Cluster, Compute, Link, Workload
from pykaldist.parallel.clusters.costs import allreduce_seconds, expected_maximum, scaled
from pykaldist.parallel.planning.plan import Prediction, has_period, plan, predict, recommend
from pykaldist.parallel.strategies import onebit
from pykaldist.parallel.strategies.bmuf import PASSES

STRATEGIES = ("ssgd", "onebit", "ma", "bmuf", "local")  # whose costs are written out here

# Su, Chen & Xu (2015): minutes an epoch, and those of communication in them, with all-reduce every 10 minibatches. Inputs of the cluster
# file: the totals of 1, 2 and 4 GPUs, and all communication. Predictions: the totals of 8, 16 and 32 GPUs, and the speed-up with a period
# of 20.
SU = {1: (254.5, 0.0), 2: (183.4, 19.9), 4: (96.0, 12.9), 8: (51.0, 7.62), 16: (27.3, 4.31), 32: (15.24, 2.31)}
SU_SPEED_UP_PERIOD_20 = 10.07  # table 3, 16 GPUs

# Chen & Huo (2016), table 4: minutes a sweep of optimising, aggregating, validating, and their sum. Inputs: the one-GPU row, MA on 8 GPUs,
# and BMUF-NBM's 17.4 on 8. Everything on 16, 32 and 64 GPUs is predicted, and so is the rest of BMUF's row of 8.
HUO = {("ma", 8): (320.1, 16.5, 2.8, 339.4), ("ma", 16): (159.9, 10.3, 1.4, 171.6), ("ma", 32): (81.0, 4.7, 0.7, 86.4),
       ("bmuf", 8): (319.8, 17.4, 2.8, 340.0), ("bmuf", 16): (159.6, 11.9, 1.4, 172.9), ("bmuf", 32): (81.5, 5.2, 0.7, 87.4),
       ("bmuf", 64): (40.3, 3.5, 0.4, 44.2)}
HUO_ONE = (2460.6, 22.5, 2483.1)
HUO_SPEED_UP = {("ma", 8): 7.3, ("ma", 16): 14.5, ("ma", 32): 28.7,
                ("bmuf", 8): 7.3, ("bmuf", 16): 14.4, ("bmuf", 32): 28.4, ("bmuf", 64): 56.2}
HUO_SPLIT = 135  # minibatches of 1,000 frames in 22.5 minutes of speech

CLUSTER = Cluster("c", "", 64, 1, Workload("n", 1_000_000, 100, 1_000_000), Compute(0.1), between=Link(1e9, 1e-4))


def minutes(name: str, ngpu: int, strategy: str, period: int, **changes: object) -> Prediction:
    """Predicted, with seconds turned into minutes."""
    cluster = dataclasses.replace(Cluster.read(name), **changes)
    found = predict(cluster.workload, cluster, ngpu, strategy, period)
    seconds = ("compute", "load", "wait", "exchange", "score", "fixed", "one_worker")
    return dataclasses.replace(found, **{part: getattr(found, part) / 60 for part in seconds})


@pytest.mark.parametrize("ngpu", SU)
def test_su_et_al_with_their_exchange_times(ngpu):
    total, exchange = SU[ngpu]
    found = minutes("k20-infiniband", ngpu, "ma", 10)
    assert found.total == pytest.approx(total, rel=0.02)
    assert found.exchange == pytest.approx(exchange, rel=0.005)


@pytest.mark.parametrize("ngpu", [4, 8, 16, 32])
def test_su_et_al_with_the_bandwidth_of_two_gpus(ngpu):
    """Of all communication only that of 2 GPUs is put in."""
    total, exchange = SU[ngpu]
    found = minutes("k20-infiniband", ngpu, "ma", 10, allreduce=None, sources={})
    assert found.total == pytest.approx(total, rel=0.03)
    assert found.exchange == pytest.approx(exchange, rel=0.17)


def test_su_et_al_with_another_period():
    assert minutes("k20-infiniband", 16, "ma", 20).speed_up == pytest.approx(SU_SPEED_UP_PERIOD_20, rel=0.02)


def test_su_et_al_speed_ups():
    assert minutes("k20-infiniband", 16, "ma", 10).speed_up == pytest.approx(9.3, abs=0.1)
    assert minutes("k20-infiniband", 32, "ma", 10).speed_up == pytest.approx(17, abs=0.2)


@pytest.mark.parametrize(("strategy", "ngpu"), HUO)
def test_chen_and_huo(strategy, ngpu):
    optimise, aggregate, validate, total = HUO[strategy, ngpu]
    found = minutes("k40-infiniband", ngpu, strategy, HUO_SPLIT)
    assert found.total == pytest.approx(total, rel=0.04)
    assert found.compute == pytest.approx(optimise, rel=0.02)
    assert found.score == pytest.approx(validate, abs=0.05)
    assert found.exchange == pytest.approx(aggregate, rel=0.31)  # published: no smooth function of the workers
    assert found.speed_up == pytest.approx(HUO_SPEED_UP[strategy, ngpu], rel=0.04)


def test_chen_and_huo_with_one_gpu():
    found = minutes("k40-infiniband", 1, "ma", HUO_SPLIT)
    assert (found.compute, found.score, found.total) == pytest.approx(HUO_ONE, rel=1e-3)


def test_the_numbers_of_k20_infiniband_follow_from_the_rows_that_they_are_said_to():
    cluster = Cluster.read("k20-infiniband")
    work, compute, table = cluster.workload, cluster.compute, cluster.allreduce
    model = make_dnn(DnnOptions(hid_layers=6, hid_dim=2048), 440, 8806, "meta")
    assert work.parameters == len(model.params) and table.bytes == work.bytes
    steps = work.frames / work.minibatch_size
    two, four = (SU[n][0] - SU[n][1] for n in (2, 4))
    fixed = 2 * four - two
    assert compute.epoch_seconds == pytest.approx(60 * fixed)
    assert compute.minibatch_seconds == pytest.approx(60 * 2 * (two - fixed) / steps, rel=1e-4)
    assert compute.single_minibatch_seconds == pytest.approx(60 * (SU[1][0] - fixed) / steps, rel=1e-4)
    seconds = {n: 60 * SU[n][1] / (steps / n / 10) for n in (2, 4, 8, 16, 32)}
    assert {int(n): s for n, s in table.seconds.items()} == pytest.approx(seconds, rel=1e-4)
    assert cluster.between.bandwidth == pytest.approx(work.bytes / seconds[2], rel=1e-3)


def test_the_numbers_of_k40_infiniband_follow_from_the_rows_that_they_are_said_to():
    cluster = Cluster.read("k40-infiniband")
    work, compute = cluster.workload, cluster.compute
    steps = work.frames / work.minibatch_size
    optimise, aggregate, _, _ = HUO["ma", 8]
    assert compute.minibatch_seconds == pytest.approx(60 * 8 * optimise / steps, rel=1e-4)
    assert compute.single_minibatch_seconds == pytest.approx(60 * HUO_ONE[0] / steps, rel=1e-4)
    assert compute.score_seconds == pytest.approx(60 * HUO_ONE[1] / (work.cv_frames / work.minibatch_size), rel=1e-4)
    assert sum(PASSES) * work.bytes / compute.memory_bandwidth == pytest.approx(60 * (HUO["bmuf", 8][1] - aggregate) / 620, rel=2e-3)
    assert cluster.between.bandwidth == pytest.approx(2 * 7 / 8 * work.bytes / (60 * aggregate / 620), rel=1e-3)


def ring(workers: int, links: list[Link], size: float) -> float:
    """A ring all-reduce carried out: numbers are summed and handed round; seconds of its steps, each as long as its slowest link takes.

    links[k] leads from worker k to the next one.
    """
    rng = np.random.default_rng(0)
    chunks = rng.integers(0, 100, (workers, workers))  # worker x chunk
    expected, seconds = chunks.sum(0), 0.0
    for summing in (True, False):
        for step in range(workers - 1):
            sent = [(k, (k - step + (not summing)) % workers) for k in range(workers)]
            values = [chunks[k, c] for k, c in sent]
            for (k, c), value in zip(sent, values, strict=True):
                chunks[(k + 1) % workers, c] = value + (chunks[(k + 1) % workers, c] if summing else 0)
            seconds += max(link.latency + size / workers / link.bandwidth for link in links)
    assert (chunks == expected).all()
    return seconds


@pytest.mark.parametrize(("nodes", "devices", "workers"), [(1, 2, 2), (1, 8, 5), (8, 1, 8), (4, 2, 8), (4, 4, 3), (4, 4, 16), (3, 2, 5)])
def test_an_allreduce_takes_as_long_as_its_steps(nodes, devices, workers):
    within, between = Link(5e9, 1e-6), Link(1e9, 2e-5)
    cluster = dataclasses.replace(CLUSTER, nodes=nodes, devices=devices, within=within, between=between if nodes > 1 else None)
    node = [k // devices for k in range(workers)]
    links = [within if node[k] == node[(k + 1) % workers] else between for k in range(workers)]
    assert allreduce_seconds(cluster, workers, 4e6) == pytest.approx(ring(workers, links, 4e6))


@pytest.mark.parametrize(("devices", "workers"), [(2, 8), (4, 16), (8, 64)])
def test_an_allreduce_node_by_node_has_three_parts(devices, workers):
    within, between = Link(5e9, 1e-6), Link(12.5e6, 0.05)
    cluster = dataclasses.replace(CLUSTER, nodes=workers // devices, devices=devices, within=within, between=between)
    nodes, by_node = workers // devices, dataclasses.replace(cluster, by_node=True)
    back = (devices - 1).bit_length() * (1e-6 + 4e6 / 5e9)
    expected = ring(devices, [within] * devices, 4e6) + ring(nodes, [between] * nodes, 4e6) + back
    assert allreduce_seconds(by_node, workers, 4e6) == pytest.approx(expected)
    assert expected < allreduce_seconds(cluster, workers, 4e6)
    assert allreduce_seconds(by_node, devices, 4e6) == allreduce_seconds(cluster, devices, 4e6)  # of one node


def test_a_measured_allreduce_goes_first():
    cluster = dataclasses.replace(CLUSTER, allreduce=Allreduce(1000, {"4": 3.0}))
    assert allreduce_seconds(cluster, 4, 500) == 1.5
    assert allreduce_seconds(cluster, 8, 500) == allreduce_seconds(CLUSTER, 8, 500)
    assert allreduce_seconds(cluster, 1, 500) == 0.0


def test_links_that_are_missing():
    alone = dataclasses.replace(CLUSTER, nodes=1, devices=4, between=None)
    with pytest.raises(UserError, match="no link within it"):
        allreduce_seconds(alone, 2, 1.0)
    one_link = dataclasses.replace(CLUSTER, nodes=4, devices=4)
    assert allreduce_seconds(one_link, 3, 6e6) == pytest.approx(4 * (1e-4 + 2e6 / 1e9))


@pytest.mark.parametrize(("workers", "exact"), [(1, 0.0), (2, 1 / math.sqrt(math.pi)), (3, 1.5 / math.sqrt(math.pi))])
def test_the_expected_maximum(workers, exact):
    assert expected_maximum(workers) == pytest.approx(exact, abs=1e-6) and expected_maximum(workers) >= 0.0


@pytest.mark.parametrize(("ngpu", "strategy", "period"), [
    (2, "ma", 10), (16, "ma", 10), (16, "ssgd", None), (32, "ma", 50), (100, "ma", 20)])
def test_waiting_is_that_of_epochs_drawn_at_random(ngpu, strategy, period):
    """Minibatches of lognormal length; 64 devices, so that 100 workers share them in twos."""
    spread, every = 0.2, period or 1
    cluster = dataclasses.replace(CLUSTER, compute=Compute(0.1, spread=spread))
    work = dataclasses.replace(cluster.workload, frames=100 * 200 * ngpu)  # 200 minibatches a worker
    found = predict(work, cluster, ngpu, strategy, period)
    sharing, devices = (2, 64) if ngpu > 64 else (1, ngpu)
    sigma = math.sqrt(math.log1p(spread**2))
    drawn = np.random.default_rng(1).lognormal(math.log(0.1) - sigma**2 / 2, sigma, (40, 200 // every, devices, every * sharing))
    epoch = drawn.sum(3).max(2).sum(1).mean()
    assert found.compute == pytest.approx(200 * 0.1 * sharing)
    assert found.wait == pytest.approx(epoch - found.compute, rel=0.2)


def test_an_epoch_by_hand():
    compute = Compute(0.1, 0.08, load_seconds=0.02, score_seconds=0.05, epoch_seconds=7.0, memory_bandwidth=4e6 * sum(PASSES) / 0.3,
                      work_bandwidth={"quantising": 4e6 * sum(onebit.PASSES) / 0.4})
    cluster = dataclasses.replace(CLUSTER, compute=compute, nodes=4, between=Link(1e6))
    work = dataclasses.replace(cluster.workload, frames=9000, cv_frames=400)
    bits = 1 / 32 + 2 / 1024  # of the 32 of a value, and two values a column of 1,024 rows
    model = 2 * 3 / 4 * 4.0  # seconds of an all-reduce of 4 MB between 4
    found = {s: predict(work, cluster, 4, s, 5 if has_period(s) else None) for s in STRATEGIES}
    for one in found.values():  # 22.5 minibatches
        assert (one.compute, one.load, one.score, one.fixed, one.wait) == pytest.approx((2.25, 0.45, 0.05, 7.0, 0.0))
        assert one.one_worker == pytest.approx(90 * 0.08 + 90 * 0.02 + 4 * 0.05 + 7.0)
    exchanges = {"local": model, "ma": 5 * model, "bmuf": 5 * (model + 0.3), "ssgd": 23 * model, "onebit": 23 * (model * bits + 0.4)}
    assert {s: p.exchange for s, p in found.items()} == pytest.approx(exchanges)
    assert found["ma"].total == pytest.approx(9.75 + 5 * model)
    assert found["ma"].exchange_share == pytest.approx(5 * model / (9.75 + 5 * model))
    shared = predict(work, cluster, 8, "ma", 5)  # two on each of 4 devices: as much in a device's turn, half as often
    assert (shared.compute, shared.exchange) == pytest.approx((2.25, 3 * model))
    assert shared.efficiency == pytest.approx(shared.one_worker / shared.total / 8)


def test_loading_that_overlaps_costs_what_computing_does_not_hide():
    for load, beyond in ((0.04, 0.0), (0.25, 0.15)):
        cluster = dataclasses.replace(CLUSTER, compute=Compute(0.1, load_seconds=load, load_overlaps=True))
        assert predict(cluster.workload, cluster, 4, "ma", 10).load == pytest.approx(2500 * beyond)


def test_the_largest_shard_sets_the_pace():
    even, uneven = (predict(dataclasses.replace(CLUSTER.workload, largest_shard=s), CLUSTER, 8, "ma", 10) for s in (1.0, 1.1))
    assert (uneven.compute, uneven.exchange) == pytest.approx((1.1 * even.compute, 138 / 125 * even.exchange))
    whole = predict(dataclasses.replace(CLUSTER.workload, largest_shard=9.0), CLUSTER, 8, "ma", 10)
    assert whole.compute == pytest.approx(even.one_worker)  # one worker has everything


def test_costs_that_are_not_known_are_named():
    found = {s: predict(CLUSTER.workload, CLUSTER, 4, s, 5 if has_period(s) else None).uncounted for s in STRATEGIES}
    assert found == {"local": "", "ma": "", "ssgd": "", "bmuf": "the filter", "onebit": "quantising"}


def test_other_networks_and_minibatches_scale_the_times():
    cluster = dataclasses.replace(CLUSTER, compute=Compute(0.1, 0.2, 0.5, 0.3, True, 0.4, 0.6, 7e9, {"it": 5e9}, 0.7))
    work = dataclasses.replace(cluster.workload, parameters=3_000_000, minibatch_size=200)
    expected = Compute(0.1 * 6, 0.2 * 6, 0.5, 0.3 * 2, True, 0.4 * 6, 0.6, 7e9, {"it": 5e9}, 0.7 * 3)
    assert vars(scaled(cluster, work)) == {name: pytest.approx(value) for name, value in vars(expected).items()}
    assert scaled(cluster, cluster.workload) == cluster.compute


@settings(max_examples=15)
@given(st.integers(2, 24), st.sampled_from(STRATEGIES), st.integers(1, 50), st.floats(1e6, 1e11), st.floats(0, 1e-3), st.floats(0, 0.5))
def test_what_must_hold_of_any_prediction(ngpu, strategy, period, bandwidth, latency, spread):
    def of(strategy: str, period: int | None, bandwidth: float = bandwidth) -> Prediction:
        cluster = dataclasses.replace(CLUSTER, between=Link(bandwidth, latency), compute=Compute(0.1, spread=spread))
        return predict(cluster.workload, cluster, ngpu, strategy, period if has_period(strategy) else None)

    one = of(strategy, period)
    assert one.total >= one.one_worker / min(ngpu, 64) * (1 - 1e-12)
    assert of(strategy, period, 2 * bandwidth).total <= one.total
    assert of("ma", 2 * period).total <= of("ma", period).total * (1 + 1e-12)
    assert of("ma", 1).exchange == pytest.approx(of("ssgd", None).exchange)
    assert of("local", None).exchange <= one.exchange * 32 and of("onebit", None).exchange <= of("ssgd", None).exchange


def test_a_plan_has_every_combination_once():
    found, notes = plan(CLUSTER.workload, CLUSTER, [1, 2, 4], ["ma", "ssgd"], [5, 10])
    rows = [(p.ngpu, p.strategy, p.period) for p in found]
    assert rows == [(1, "local", None), *((n, s, p) for n in (2, 4) for s, p in (("ma", 5), ("ma", 10), ("ssgd", None)))]
    assert found[0].speed_up == 1.0 and not notes


def test_what_cannot_be_is_noted_and_an_error_where_there_is_nothing_else():
    nodes = dataclasses.replace(CLUSTER, devices=4, within=Link(1e9))
    found, notes = plan(nodes.workload, nodes, [2, 6], ["ma", "hadpsgd"], [10])
    assert [(p.ngpu, p.strategy) for p in found] == [(2, "ma"), (2, "hadpsgd"), (6, "ma")]
    assert len(notes) == 1 and notes[0].startswith("hadpsgd is left out: 4 workers a node: 6 workers make no whole number")
    with pytest.raises(UserError, match="make no whole number"):
        plan(nodes.workload, nodes, [6], ["hadpsgd"], [10])


@pytest.mark.parametrize(("arguments", "words"), [
    ((4, "sgd", None), "sgd is not one that is known; choose among adpsgd"),
    ((0, "ma", 5), "expected positive"), ((4, "ma", 0), "expected positive"),
    ((4, "ma", None), "ma has a period"), ((4, "ssgd", 5), "ssgd has no period"),
])
def test_what_can_not_be_predicted(arguments, words):
    with pytest.raises(UserError, match=words):
        predict(CLUSTER.workload, CLUSTER, *arguments)


def advise(cluster: Cluster, ngpus: list[int], strategies: tuple[str, ...] = STRATEGIES) -> tuple[tuple | None, str]:
    best, reasons = recommend(plan(cluster.workload, cluster, ngpus, strategies, [5, 10, 20])[0], cluster.workload)
    return None if best is None else (best.ngpu, best.strategy, best.period), "; ".join(reasons)


def test_the_recommendation_and_its_reasons():
    su = Cluster.read("k20-infiniband")
    best, reasons = advise(su, [2, 4, 8, 16, 32, 64])
    assert best == (32, "ma", 10)  # what the paper used
    assert "64 workers would give" in reasons and "onebit (quantising)" in reasons and "32,768 frames" in reasons
    assert advise(su, [1])[0] == (1, "local", None)
    assert advise(su, [64])[0] is None
    assert advise(su, [8], ("local",))[0] is None
    fast = dataclasses.replace(CLUSTER, between=Link(1e12))
    assert advise(fast, [32])[0] == (32, "ssgd", None)
    slow = dataclasses.replace(CLUSTER, between=Link(1e8), compute=Compute(0.1, memory_bandwidth=1e12))
    assert advise(slow, [32])[0] == (32, "onebit", None)
    best, reasons = advise(dataclasses.replace(slow, workload=dataclasses.replace(slow.workload, minibatch_size=200)), [32])
    assert best[:2] == (32, "ma") and "bmuf takes about as long" in reasons
