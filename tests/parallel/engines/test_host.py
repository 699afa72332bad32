"""The host: all operations compared with plain loops, for any number of workers on any number of processes, and the order of sums."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
import torch

from pykaldist.parallel.engines import host as host_module
from pykaldist.parallel.engines.host import Host

LAYOUTS = [(1, 1), (2, 1), (2, 2), (3, 2), (5, 1), (5, 3), (7, 4), (7, 7)]


@pytest.fixture(params=LAYOUTS, ids=lambda layout: "{} on {}".format(*layout))
def layout(request):
    return request.param


@pytest.fixture(params=[False, True], ids=["any order", "in order"])
def deterministic(request):
    return request.param


@pytest.fixture
def ask(job, layout, deterministic):
    """What `coroutine(fabric)` gives for each worker."""
    return lambda coroutine: job(*layout, lambda host: host.run([coroutine(fabric) for fabric in host.fabrics]), deterministic)


def buffers(size, length=23, dtype=torch.float32):
    generator = torch.Generator().manual_seed(size)
    scales = 10.0 ** torch.randint(-3, 4, (size, length), generator=generator)  # so that the order of a sum shows
    return (torch.randn(size, length, generator=generator) * scales).to(dtype)


@pytest.mark.parametrize("weights", [[1] * 7, [3, 1, 4, 1, 5, 9, 2], [0, 7, 0, 0, 5, 0, 0], [0] * 7], ids=["equal", "all", "some", "none"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_averages_are_weighted(ask, layout, deterministic, monkeypatch, weights, dtype):
    """By frames: of a shard that is used up nothing; where there are no weights at all, all is left as it is."""
    monkeypatch.setattr(host_module, "PIECE", 10)
    weights = np.array(weights[: layout[0]], float)
    before = buffers(layout[0], dtype=dtype)

    async def average(fabric):
        buffer = before[fabric.rank].clone()
        await fabric.average(buffer, weights[fabric.rank])
        return buffer

    found = torch.stack(ask(average))
    if not weights.any():
        assert torch.equal(found, before)
        return
    expected = torch.from_numpy(np.average(before.double().numpy(), axis=0, weights=weights)).to(dtype)
    assert all(torch.equal(found[0], one) for one in found)
    size = before.abs().max(0).values
    assert (found[0] - expected).abs().le(1e-6 * size).all()
    if deterministic:  # in the order of ranks, in the arithmetic of `dtype`
        equal = len(set(weights)) == 1
        rows = before if equal else before * torch.from_numpy(weights / weights.sum())[:, None].to(dtype)
        slow = rows[0].clone()
        for row in rows[1:]:
            slow = slow + row
        assert torch.equal(found[0], slow * (1.0 / len(rows)) if equal else slow)


def test_sums_and_what_else_workers_tell_each_other(ask, layout):
    n = layout[0]
    before = buffers(n)

    async def talk(fabric):
        k = fabric.rank
        buffer = before[k].clone()
        frames = await fabric.sum(buffer, 10.0 + k)
        hop = (k + 2) % n, (k - 2) % n
        received = await fabric.exchange(before[k], *hop)
        gathered = await fabric.gather(torch.full((k + 1,), k))
        scattered = await fabric.scatter([torch.full((k + other,), 10 * k + other, dtype=torch.uint8) for other in range(n)])
        return buffer, frames, await fabric.total(k + 0.5), await fabric.maximum(-k), received, gathered, scattered

    results = ask(talk)
    for k, (buffer, frames, total, largest, received, gathered, scattered) in enumerate(results):
        assert torch.allclose(buffer, before.sum(0), atol=1e-2) and torch.equal(buffer, results[0][0])
        assert (frames, total, largest) == (sum(10 + i for i in range(n)), sum(i + 0.5 for i in range(n)), 0)
        assert torch.equal(received, before[(k - 2) % n])
        assert [part.tolist() for part in gathered] == [[i] * (i + 1) for i in range(n)]
        assert [part.tolist() for part in scattered] == [[10 * i + k] * (k + i) for i in range(n)]


@pytest.mark.parametrize("weights", [[1] * 7, [3, 1, 0, 1, 5, 9, 2]], ids=["equal", "other"])
def test_an_average_goes_on_meanwhile(ask, layout, monkeypatch, weights):
    """It is the one of `average`, to the bit, of what was given; and other things are exchanged before it is finished."""
    monkeypatch.setattr(host_module, "PIECE", 10)
    before = buffers(layout[0])

    async def both(fabric):
        k = fabric.rank
        found = []
        for factor in (1.0, 2.0):
            given, at_once = before[k] * factor, before[k] * factor
            ticket = await fabric.begin(fabric.mean(given, weights[k]))
            assert await fabric.total(1.0) == fabric.size
            await fabric.average(at_once, weights[k])
            found.append((await fabric.finish(ticket)).clone())
            assert torch.equal(found[-1], at_once) and torch.equal(given, before[k] * factor)
        return found

    for one, two in ask(both):
        assert torch.equal(one * 2.0, two)


def test_several_exchanges_of_any_kind_are_under_way_and_end_in_any_order(ask, layout):
    """A mean in two steps, by a scatter and a gather, as a coroutine of its own; and a mean of the whole; and a sum, all at once."""
    n = layout[0]
    before = buffers(n)
    edges = [before.shape[1] * k // n for k in range(n + 1)]

    async def in_stripes(fabric):
        parts = await fabric.scatter([before[fabric.rank][a:b] for a, b in itertools.pairwise(edges)])
        return torch.cat(await fabric.gather(torch.stack(parts).sum(0) / n)), await fabric.total(fabric.rank)

    async def work(fabric):
        tickets = [await fabric.begin(fabric.mean(before[fabric.rank], 1.0)), await fabric.begin(in_stripes(fabric))]
        tickets.append(await fabric.begin(fabric.sum(summed := before[fabric.rank].clone(), 2.0)))
        assert len(set(tickets)) == 3
        total = await fabric.total(1.0)
        twos, (striped, ranks), mean = [await fabric.finish(ticket) for ticket in reversed(tickets)]
        return mean, striped, summed, twos, ranks, total

    for mean, striped, summed, *numbers in ask(work):
        for found in (mean, striped, summed / n):
            assert torch.allclose(found, before.mean(0), atol=1e-2)
        assert numbers == [2.0 * n, n * (n - 1) / 2, n]


def test_an_exchange_gives_what_the_other_had_when_it_sent(ask, layout):
    async def swap(fabric):
        buffer = torch.tensor([float(fabric.rank)])
        for _ in range(3):
            buffer.add_(await fabric.exchange(buffer, (fabric.rank + 1) % fabric.size, (fabric.rank - 1) % fabric.size))
        return buffer

    rows = torch.arange(float(layout[0]))
    for _ in range(3):
        rows = rows + rows.roll(1)
    assert torch.cat(ask(swap)).tolist() == rows.tolist()


def test_the_distance_of_workers_from_their_mean(job, layout):
    before = buffers(layout[0]) + 1.0

    async def average(fabric):
        await fabric.average(before[fabric.rank].clone(), 1.0, measure=True)

    def work(host):
        host.run([average(fabric) for fabric in host.fabrics])
        disagreement = host.disagreement
        host.begin_epoch()
        assert host.disagreement == 0.0
        return [disagreement] * len(host.ranks)

    mean = before.mean(0)
    expected = ((before - mean).norm(dim=1) / mean.norm()).mean()
    found = job(*layout, work)
    assert found == pytest.approx([float(expected)] * layout[0], abs=1e-6)
    assert found == job(layout[0], 1, work)  # to the bit


@pytest.mark.parametrize("weights", ["alike", "others", "one"])
def test_the_cosine_of_the_ways_that_workers_have_gone(job, layout, weights):
    rng = torch.Generator().manual_seed(3)
    common, moves = torch.randn(7, generator=rng), torch.randn(layout[0], 7, generator=rng)
    share = {"alike": torch.ones(layout[0]), "others": 1 + torch.arange(layout[0]) % 3, "one": torch.eye(layout[0])[0]}[weights].double()
    share = share / share.sum()

    async def average(fabric):
        await fabric.average(common + moves[fabric.rank], float(share[fabric.rank]), True, common.clone())

    def work(host):
        host.run([average(fabric) for fabric in host.fabrics])
        cosine = host.update_cosine
        host.begin_epoch()
        assert host.update_cosine is None
        return [cosine] * len(host.ranks)

    found = job(*layout, work)
    assert found == job(layout[0], 1, work)  # to the bit
    if layout[0] == 1 or weights == "one":  # no two workers have moved
        assert found == [None] * layout[0]
    else:  # one pair after the other
        pairs = [(float(share[j] * share[k]), float(moves[j] @ moves[k])) for j in range(len(moves)) for k in range(len(moves)) if j != k]
        product = sum(weight * value for weight, value in pairs) / sum(weight for weight, _ in pairs)
        assert found == pytest.approx([product / float(share @ moves.double().square().sum(1))] * layout[0], abs=1e-5)


def test_at_a_safe_point_the_most_urgent_wish_is_met_by_all(job):
    async def pass_by(fabric):
        for _ in range(3):
            await fabric.safe_point()

    def work(host):
        met = []
        wishes = iter([0, 1, 2] if host.processes.rank == 1 else [0, 0, 1])
        host.wish, host.on_safe_point = lambda: next(wishes), met.append
        host.run([pass_by(fabric) for fabric in host.fabrics])
        return [met] * len(host.ranks)

    assert job(5, 3, work) == [[1, 2]] * 5


def test_time_is_counted_where_it_went(job):
    async def work(fabric):
        await fabric.total(0.0)  # all begin together
        await fabric.compute(lambda: time.sleep(0.2 if fabric.rank == 0 else 0.0))
        await fabric.average(torch.zeros(1000), 1.0)

    def seconds(host):
        host.run([work(fabric) for fabric in host.fabrics])
        return [fabric.seconds for fabric in host.fabrics]

    slow, *others = job(3, 3, seconds)
    assert slow["compute"] >= 0.2 and all(other["wait"] > 0.1 > other["compute"] for other in others)
    assert all(one["exchange"] > 0 for one in (slow, *others))


def test_workers_are_shared_out_in_order_and_evenly():
    class Fake:
        def __init__(self, rank, size):
            self.rank, self.size = rank, size

    for size, processes in LAYOUTS:
        ranks = [list(Host(size, Fake(p, processes)).ranks) for p in range(processes)]
        assert [rank for own in ranks for rank in own] == list(range(size))
        assert {len(own) for own in ranks} <= {size // processes, -(-size // processes)}
    with pytest.raises(ValueError, match="2 workers on 3 processes"):
        Host(2, Fake(0, 3))


def test_workers_that_ask_for_different_things_are_an_error():
    async def odd(fabric):
        if fabric.rank == 0:
            await fabric.total(1.0)
        else:
            await fabric.sum(torch.zeros(3))

    host = Host(2)
    with pytest.raises(RuntimeError, match="2 of 2 workers wait for Sum, Total"):
        host.run([odd(fabric) for fabric in host.fabrics])

    async def short(fabric):
        if fabric.rank == 0:
            await fabric.total(1.0)

    with pytest.raises(RuntimeError, match="1 of 2 workers wait for Total"):
        host.run([short(fabric) for fabric in host.fabrics])


def test_an_error_of_one_worker_ends_all():
    ended = []

    async def work(fabric):
        try:
            await fabric.total(1.0)
            if fabric.rank == 1:
                raise ValueError("broken")
            await fabric.total(1.0)
        finally:
            ended.append(fabric.rank)

    host = Host(3)
    with pytest.raises(ValueError, match="broken"):
        host.run([work(fabric) for fabric in host.fabrics])
    assert sorted(ended) == [0, 1, 2]


@pytest.mark.parametrize(("size", "count", "groups"), [(4, 1, 2), (6, 3, 2), (8, 4, 4), (8, 2, 2), (6, 6, 3), (4, 2, 4)])
def test_groups_sum_and_broadcast_among_themselves(job, size, count, groups):
    """In groups of so many workers, which whole processes host, or which one process hosts several of."""
    data = buffers(size)

    async def work(fabric):
        first = fabric.rank // groups * groups
        members, own, down = range(first, first + groups), data[fabric.rank].clone(), data[fabric.rank].clone()
        total = await fabric.sum_within(own, fabric.rank, members)
        await fabric.broadcast_within(down, members)
        return own, total, down

    for rank, (own, total, down) in enumerate(job(size, count, lambda host: host.run([work(fabric) for fabric in host.fabrics]))):
        members = range(rank // groups * groups, (rank // groups + 1) * groups)
        assert torch.allclose(own, data[members.start : members.stop].sum(0)) and total == sum(members)
        assert torch.equal(down, data[members.start])
