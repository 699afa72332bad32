"""Minibatches made together are those that each sampler makes by itself."""

from __future__ import annotations

import pytest
import torch

from pykaldist.frames.device_frames import SharedFrames
from pykaldist.frames.sampler import Partition, Sampler
from pykaldist.frames.stacked import stacked

FIELDS = ("inputs", "targets", "weights", "posterior_pdfs", "posterior_probs", "target_feats")
PARTS, SIZE = 3, 8  # 41, 41 and 42 frames: five full minibatches, and a last one of 1 or 2


@pytest.fixture
def sampler(make_store):
    """`sampler(room)`: the frames come in pieces where they do not fit into so many bytes."""
    store = make_store([40, 30, 54], extras=("weights", "posteriors", "target_feats"))

    def make(room=None):
        frames = SharedFrames(store, torch.device("cpu"), (1, 1), room, PARTS, copied=True)
        frames.hold()
        generator = torch.Generator().manual_seed(0)
        shift, scale = torch.randn(12, generator=generator), torch.rand(12, generator=generator)
        return Sampler(store, Partition(store, PARTS), 0, SIZE, [-1, 0, 1], shift, scale, 0, torch.device("cpu"), frames)

    return make


def copied(minibatch):
    return {name: getattr(minibatch, name).clone() for name in FIELDS}


def same(found, expected):
    return all(torch.equal(getattr(found, name), expected[name]) for name in FIELDS)


@pytest.mark.parametrize("room", [None, 500])
def test_each_has_its_own_minibatches(sampler, room):
    own = sampler(room)
    expected = [[copied(minibatch) for minibatch in own.of_split(part).epoch(0)] for part in range(PARTS)]
    samplers, gather = stacked(sampler(room), range(PARTS))
    sources = [one.epoch(0) for one in samplers]
    for index in range(6):
        gather.defer()
        minibatches = [next(source) for source in sources]
        assert gather.make() == (index < 5)
        assert all(same(one, expected[part][index]) for part, one in enumerate(minibatches))
        if index < 5:
            assert len(gather.whole) == SIZE
            assert same(gather.whole, {name: torch.cat([of[index][name] for of in expected]) for name in FIELDS})


def test_a_minibatch_by_itself_is_made_at_once_and_leaves_the_others(sampler):
    own = sampler()
    expected = [copied(next(own.of_split(part).epoch(0))) for part in range(PARTS)]
    samplers, _ = stacked(sampler(), range(PARTS))
    made = [next(one.epoch(0)) for one in samplers]
    assert all(same(one, other) for one, other in zip(made, expected, strict=True))
