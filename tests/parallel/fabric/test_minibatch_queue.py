"""The minibatch queue of an epoch: each minibatch is done once, whoever is fast and whoever dies."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.frames.sampler import Partition, Sampler
from pykaldist.parallel.fabric.minibatch_queue import MinibatchQueue, MinibatchSources


@settings(max_examples=200)
@given(st.data(), st.lists(st.integers(0, 6), min_size=1, max_size=5), st.booleans())
def test_every_minibatch_is_settled_once_by_those_that_live(data, counts, queue):
    """Workers take in any order, hold back up to two, die now and then, and the queue is saved and loaded in between."""
    size = len(counts)
    minibatches, held, settled = MinibatchQueue(counts), {k: [] for k in range(size)}, Counter()
    while not minibatches.over:
        rank = data.draw(st.sampled_from([k for k in range(size) if k not in minibatches.dead]))
        if len(minibatches.dead) < size - 1 and data.draw(st.integers(0, 9)) == 0:
            assert minibatches.remove_dead(rank) == len(held.pop(rank)) and minibatches.remove_dead(rank) == 0
            continue
        kept = data.draw(st.integers(0, min(2, len(held[rank]))))
        cut = len(held[rank]) - kept
        settled.update(held[rank][:cut])
        held[rank] = held[rank][cut:]
        more = minibatches.more(rank, queue)
        found = minibatches.take(rank, queue, kept)
        assert (found is not None) == more
        if found is not None:
            minibatch, fraction = found
            assert 0.0 <= fraction < 1.0 and (queue or minibatch[0] == rank or minibatch[0] in minibatches.dead)
            held[rank].append(minibatch)
        other = MinibatchQueue(counts)
        other.load_state_dict(minibatches.state_dict())
        minibatches = other
    assert settled == Counter((k, i) for k, count in enumerate(counts) for i in range(count))
    assert not any(held.values()) and not any(minibatches.more(k, True) for k in range(size))


def slow_choice(minibatches: MinibatchQueue, rank: int, queue: bool) -> int | None:
    """The split from which `rank` takes its next minibatch, found by looking at all splits; None where it is one to be done again."""
    left = {k: count - minibatches._next[k] for k, count in enumerate(minibatches.counts)}
    if left[rank]:
        return rank
    allowed = [k for k in left if left[k] and (queue or k in minibatches.dead)]
    return max(allowed, key=lambda k: (left[k], -k), default=None)


@settings(max_examples=200)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.booleans(),
       st.lists(st.tuples(st.integers(0, 5), st.integers(0, 7)), max_size=60))
def test_minibatches_come_from_where_a_look_at_all_splits_finds_them(counts, queue, turns):
    minibatches = MinibatchQueue(counts)
    for rank, chance in turns:
        rank %= len(counts)
        if rank in minibatches.dead:
            continue
        if chance == 0 and len(minibatches.dead) < len(counts) - 1:
            minibatches.remove_dead(rank)
            continue
        expected, again = slow_choice(minibatches, rank, queue), list(minibatches._again)
        found = minibatches.take(rank, queue, chance % 3)
        if expected is not None:
            assert found is not None and found[0][0] == expected
        else:
            assert (found and found[0]) == (again[0] if again else None)


def test_with_a_queue_each_does_its_own_part_and_then_that_with_most_left():
    minibatches = MinibatchQueue([2, 5, 4])
    taken = [minibatches.take(0, True, 0)[0] for _ in range(6)]
    assert taken == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (1, 2)]
    assert minibatches.take(2, True, 0)[0] == (2, 1)
    fractions = [minibatches.take(1, True, 0)[1] for _ in range(2)]
    assert fractions == [7 / 11, 8 / 11]


def test_with_shards_others_rest_until_one_dies():
    minibatches = MinibatchQueue([1, 3])
    assert minibatches.take(0, False, 0) == ((0, 0), 0.0) and minibatches.take(0, False, 0) is None and not minibatches.more(0, False)
    assert minibatches.take(1, False, 0) == ((1, 0), 0.0) and minibatches.take(1, False, 1) == ((1, 1), 1 / 3)
    assert minibatches.remove_dead(1) == 2 and minibatches.more(0, False) and not minibatches.over
    assert [minibatches.take(0, False, 0)[0] for _ in range(3)] == [(1, 2), (1, 0), (1, 1)]
    minibatches.settle(0, 0)
    assert minibatches.over


def test_others_do_the_part_of_a_worker_that_was_dead_before():
    minibatches = MinibatchQueue([2, 2])
    assert minibatches.remove_dead(1) == 0
    assert [minibatches.take(0, False, 0)[0] for _ in range(4)] == [(0, 0), (0, 1), (1, 0), (1, 1)]


@pytest.mark.parametrize("kept", [1, 3])
def test_any_minibatch_is_that_of_its_split(make_store, kept):
    store = make_store([40, 30, 50])
    partition = Partition(store, 3, 2)
    sampler = Sampler(store, partition, 0, 8, [0], torch.zeros(4), torch.ones(4), 0, torch.device("cpu"))
    splits = [sampler.of_split(k) for k in range(3)]
    expected = {(k, m.index): m.inputs.clone() for k, split in enumerate(splits) for m in split.epoch(2)}
    sources = MinibatchSources(splits.__getitem__, 2, kept)
    order = sorted(expected, key=lambda minibatch: (minibatch[1] * 7 + minibatch[0] * 3) % 11)

    class Reader:
        def draw_from(self, source):
            self.read = next(source)

    for minibatch in order:
        reader = Reader()
        sources.assign(reader, minibatch)
        assert reader.read.index == minibatch[1] and torch.equal(reader.read.inputs, expected[minibatch])
