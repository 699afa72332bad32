"""Shares of an elastic epoch: whoever dies and joins, each minibatch is settled once, and all have equally much left."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.parallel.fabric.shares import Shares, count, divided

BLOCKS = st.integers(1, 3).flatmap(lambda m: st.lists(st.lists(st.integers(1, 9), min_size=m, max_size=m), min_size=2, max_size=6))
# Of each round: who is lost before its exchange and after it, and who joins after it.
SCRIPT = st.lists(st.tuples(st.sets(st.integers(0, 5)), st.sets(st.integers(0, 5)), st.sets(st.integers(0, 5))), max_size=8)


def units(runs):
    return [(split, number) for split, start, stop in runs for number in range(start, stop)]


def epoch(shares: Shares, script, period: int, size: int):
    """An epoch whose workers die and join as the script says (worker 0 never): (what was settled, the events)."""
    settled: Counter[tuple[int, int]] = Counter()
    living, script, events = set(shares.runs), iter(script), []
    while True:
        numbers, behind = shares.begin_round(period)
        if behind < 0:
            return settled, events
        before, after, joining = next(script, (set(), set(), set()))
        living -= before - {0}
        for rank in living:
            settled.update(units(divided(shares.runs[rank], shares.under_way[rank])[0]))
        shares.settle(living)
        living -= after - {0}
        events.append((numbers, behind, count(shares.change(living))))
        living |= {rank for rank in joining if rank < size}
        shares.change(living)
        left = [shares.left(rank) for rank in living]
        if before | after | joining and events[-1][2]:
            assert max(left) - min(left) <= 1
        for rank in living:
            assert shares.done[rank] >= shares.since[rank][1] and 0.0 <= shares._fraction(rank) <= 1.0


@settings(max_examples=60)
@given(BLOCKS, SCRIPT, st.integers(0, 4), st.integers(0, 3))
def test_each_minibatch_is_settled_once_and_the_same_twice(blocks, script, period, seed):
    outcomes = []
    for _ in range(2):
        shares = Shares(blocks, seed, 1)
        outcomes.append(epoch(shares, script, period, len(blocks)))
        assert not any(shares.runs.values())
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][0] == Counter({(k, i): 1 for k, own in enumerate(blocks) for i in range(sum(own))})


@settings(max_examples=40)
@given(BLOCKS, SCRIPT, st.integers(0, 4), st.integers(0, 8))
def test_a_state_goes_on_as_it_would_have(blocks, script, period, rounds):
    one = Shares(blocks, 0, 0)
    for _ in range(rounds):
        one.begin_round(period)
        one.settle(one.runs)
    other = Shares(blocks, 0, 0)
    other.load_state_dict(one.state_dict())
    assert epoch(one, script, period, len(blocks)) == epoch(other, script, period, len(blocks))


@settings(max_examples=40)
@given(BLOCKS, st.integers(0, 4))
def test_without_deaths_rounds_are_the_plain_ones(blocks, period):
    """As `Strategy.rounds` has them: each worker goes to the next end of a period, or of a block, of its own part."""
    shares, size = Shares(blocks, 0, 0), len(blocks)
    ends = [[sum(own[: i + 1]) for i in range(len(own))] if period == 0 else
            [min(start + period, sum(own)) for start in range(0, sum(own), period)] for own in blocks]
    for number in range(rounds := max(map(len, ends))):
        numbers, behind = shares.begin_round(period)
        assert behind == rounds - 1 - number
        assert [numbers[k] for k in range(size)] == [
            (own[number] - (own[number - 1] if number else 0)) if number < len(own) else 0 for own in ends]
        shares.settle(range(size))
    assert shares.begin_round(period)[1] == -1


@pytest.mark.parametrize("epochs", [0, 1])
def test_a_lost_worker_leaves_equal_parts_from_where_it_was_last_heard_of(epochs):
    shares = Shares([[12], [12], [12]], 5, epochs)
    for _ in range(2):
        shares.begin_round(4)
        shares.settle([0, 1, 2])
    shares.begin_round(4)
    shares.settle([0, 2])  # worker 1 dies in its third round
    assert shares.change([0, 2]) == [(1, 8, 12)]
    assert sorted(units(shares.ahead(0) + shares.ahead(2))) == [(1, i) for i in range(8, 12)]
    assert [shares.left(rank) for rank in (0, 2)] == [2, 2]
    assert shares.since[0] == (1.0, 12, 2)  # its own part was done: rates that move within the epoch do not go back
