"""Exchanges in bfloat16: the formulas in plain loops, what is lost (nothing), what it takes, and which model it ends in."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from pykaldist.errors import UserError
from pykaldist.parallel.clusters.cluster import Cluster, Compute, Link, Workload
from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.fabric.interface import Fabric
from pykaldist.parallel.planning.dry_run import rehearse
from pykaldist.parallel.strategies.base import rounding
from pykaldist.parallel.strategies.base.registry import make_strategy, strategy_options
from pykaldist.parallel.strategies.base.rounding import rounded_mean, rounded_sum, with_remainders
from pykaldist.parallel.strategies.bmuf import BmufOptions
from pykaldist.parallel.strategies.ma import Ma, MaOptions

CLUSTER = Cluster("c", "", 4, 1, Workload("n", 1_000_000, 100, 8 * 100 * 200), between=Link(1e7), compute=Compute(0.1))
ROUNDS = 6


@pytest.fixture
def contributions():
    """Of three workers in six rounds: numbers of very different sizes, whose small ones bfloat16 would lose beside others."""
    generator = torch.Generator().manual_seed(3)
    scales = 10.0 ** torch.randint(-4, 1, (ROUNDS, 3, 11), generator=generator)
    return torch.randn(ROUNDS, 3, 11, generator=generator, dtype=torch.float64) * scales


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize(("processes", "bucket"), [(1, 11), (2, 11), (3, 11), (1, 4), (2, 3)])
def test_what_rounding_loses_is_added_the_next_time(job, contributions, monkeypatch, processes, bucket, deterministic):
    """Of contributions, and of their sums; so that all that was sent, and what remains, is all. In one bucket, or in several."""
    monkeypatch.setattr(rounding, "BUCKET", bucket)

    async def exchange(fabric):
        totals, left = [], None
        for row in contributions[:, fabric.rank]:
            total, left = await rounded_sum(fabric, row, left)
            totals.append(total)
        remaining = with_remainders(fabric, torch.zeros(11, dtype=torch.float64), left)
        await fabric.sum(remaining)
        return torch.stack(totals), remaining

    found = job(3, processes, lambda host: host.run([exchange(fabric) for fabric in host.fabrics]), deterministic)
    r, q, expected = torch.zeros(3, 11, dtype=torch.float64), torch.zeros(11, dtype=torch.float64), []
    for row in contributions:
        wanted = row + r
        sent = wanted.bfloat16().double()
        r = wanted - sent
        total = q + sent[0] + sent[1] + sent[2]
        q = total - total.bfloat16().double()
        expected.append(total.bfloat16().double())
    for totals, remaining in found:
        assert torch.equal(totals, torch.stack(expected)) and torch.equal(totals, totals.bfloat16().double())
        assert torch.allclose(totals.sum(0) + remaining, contributions.sum((0, 1)), rtol=0, atol=1e-12)
    assert (torch.stack(expected).sum(0) - contributions.bfloat16().double().sum((0, 1))).abs().max() > 1e-4  # it does something


def test_a_mean_is_weighted(job, contributions):
    weights = [1.0, 0.0, 3.0]

    async def exchange(fabric):
        ticket = await fabric.begin(rounded_mean(fabric, contributions[0, fabric.rank], weights[fabric.rank], None, background=True))
        return (await rounded_mean(fabric, contributions[0, fabric.rank], weights[fabric.rank], None))[0], (await fabric.finish(ticket))[0]

    expected = (contributions[0, 0] + 3.0 * contributions[0, 2]) / 4.0
    for mean, meanwhile in job(3, 2, lambda host: host.run([exchange(fabric) for fabric in host.fabrics])):
        assert torch.allclose(mean, expected, rtol=0.0, atol=0.02) and torch.equal(mean, meanwhile)


@pytest.mark.parametrize(("name", "options"), [("ssgd", {}), ("ma", {"average_period": 3}), ("ma", {"average_period": 3, "overlap": True}),
                                               ("bmuf", {"average_period": 3})])
def test_it_ends_near_the_model_of_full_precision(make_workers, train, name, options):
    """After a whole run nearer than one rounding of the model would bring it."""
    models = []
    for dtype in ("float32", "bf16"):
        made = [make_strategy(name, strategy_options(name)(**options, exchange_dtype=dtype)) for _ in range(3)]
        models.append(train(make_workers(3, minibatch_size=4), made, 3, 0.01))
        assert all(strategy.remainders is None for strategy in made)  # nothing is left at an epoch's end
    far, coarse = ((other - models[0]).norm() for other in (models[1], models[0].bfloat16().float()))
    assert 0.0 < far < coarse, (far, coarse)


@pytest.mark.parametrize(("name", "period"), [("ssgd", {}), ("ma", {"average_period": 2}), ("bmuf", {"average_period": 2})])
def test_a_prediction_counts_half_the_bytes(name, period):
    cluster = dataclasses.replace(CLUSTER, compute=dataclasses.replace(CLUSTER.compute, memory_bandwidth=1e15))
    full, half = (rehearse(name, strategy_options(name)(**period, exchange_dtype=dtype), cluster.workload, cluster, 4, 400).exchange
                  for dtype in ("float32", "bf16"))
    assert half == pytest.approx(full / 2, rel=0.02)  # but an epoch's last exchange


@pytest.mark.parametrize("make", [lambda: MaOptions(exchange_dtype="bf16", reduce_type="ring"),
                                  lambda: MaOptions(exchange_dtype="bf16", reduce_content="all"),
                                  lambda: BmufOptions(exchange_dtype="bf16", local_momentum="average")])
def test_only_models_and_gradients_are_sent_so(make):
    with pytest.raises(UserError, match=r"--exchange-dtype bf16.*only models"):
        make()


def test_a_bucket_is_exchanged_while_the_next_is_rounded(contributions, monkeypatch):
    """Two are under way when the first is waited for."""
    monkeypatch.setattr(rounding, "BUCKET", 3)
    seen = []

    class Noting(Fabric):
        async def work(self, what, work, over, passes):
            seen.append(f"round {len(over)}")
            return work()

        async def begin(self, exchange):
            seen.append("begin")
            return await super().begin(exchange)

        async def finish(self, ticket):
            seen.append("finish")
            return await super().finish(ticket)

    host = Host(1)
    host.fabrics = [Noting(0, 1)]
    host.run([rounded_sum(fabric, contributions[0, 0], None) for fabric in host.fabrics])
    first = ["round 3", "begin"]
    assert seen == [*first, *first, "finish", *first, "finish", "round 2", "begin", "finish", "finish"]


@pytest.mark.gpu
def test_on_a_device_the_streams_keep_their_order(cuda, mover):
    """Means in the background, on a stream of their own, whose remainders the last exchange takes on the default one."""
    models = []
    for device in (torch.device("cpu"), torch.device("cuda:0")):
        moves = torch.randn(2, 7, generator=torch.Generator().manual_seed(0)).to(device)
        workers = [mover(lambda w, own=own: own * (1.0 + w.params), 7, torch.ones(7, device=device)) for own in moves]
        host, options = Host(2), MaOptions(average_period=2, overlap=True, exchange_dtype="bf16")
        host.use_device(device)
        host.run([Ma(options).epoch(worker, fabric) for worker, fabric in zip(workers, host.fabrics, strict=True)])
        models.append(workers[0].params.cpu())
    assert torch.equal(*models)
