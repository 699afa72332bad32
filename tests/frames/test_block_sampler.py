"""Shuffling in two levels: every frame once, blocks in a new order, frames shuffled within a group, the same from any minibatch on."""

from __future__ import annotations

import gc
import itertools
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from resident import resident

from pykaldist.errors import UserError
from pykaldist.frames.ahead import ahead
from pykaldist.frames.block_sampler import BlockSampler
from pykaldist.frames.device_frames import SharedFrames
from pykaldist.frames.sampler import Partition, Sampler
from pykaldist.frames.shards import combine
from pykaldist.frames.store import FrameStore

CPU = torch.device("cpu")


def make(store, size, block, minibatch=7, splits=1, blocks=1, level="frame", splice=(0,), seed=3):
    width = len(splice) * store.manifest.dim
    partition = Partition(store, splits, blocks, level, 1, block if level == "frame" else 1)
    shared = SharedFrames(store, CPU, (2, 2), group=size)
    return BlockSampler(store, partition, 0, minibatch, list(splice), torch.zeros(width), torch.ones(width), seed, CPU, shared,
                        randomizer_size=size, block=block)


@pytest.fixture
def numbered(make_store):
    """A store in which the first dimension of a frame is its number."""

    def number(lengths):
        store = make_store(lengths)
        store.feats = np.array(store.feats)
        store.feats[:, 0] = np.arange(len(store))
        return store

    return number


def frames(sampler, epoch, start=0):
    """The numbers of the frames of each minibatch of an epoch."""
    return [m.inputs[:, 0].int().tolist() for m in sampler.epoch(epoch, start)]


@settings(max_examples=12)
@given(lengths=st.lists(st.integers(1, 40), min_size=6, max_size=12), splits=st.integers(1, 2), blocks=st.integers(1, 2),
       level=st.sampled_from(["frame", "utterance"]), block=st.integers(1, 9), group=st.integers(7, 40), minibatch=st.integers(1, 7),
       data=st.data())
def test_every_frame_comes_once_and_the_same_from_any_minibatch_on(numbered, lengths, splits, blocks, level, block, group, minibatch, data):
    store = numbered(lengths)
    if level == "frame" and -(-len(store) // block) < splits * blocks:
        return
    sampler = make(store, max(group, block), block, minibatch, splits, blocks, level)
    epochs = [[frames(sampler.of_split(split), epoch) for split in range(splits)] for epoch in (0, 1)]
    for epoch in epochs:
        assert sorted(itertools.chain(*itertools.chain(*epoch))) == list(range(len(store)))
        assert [len(minibatches) for minibatches in epoch] == [sampler.of_split(split).minibatches for split in range(splits)]
    if len(store) > 20:
        assert epochs[0] != epochs[1]
    start = data.draw(st.integers(0, len(epochs[1][0]) - 1))
    assert frames(sampler, 1, start) == epochs[1][0][start:]


def test_a_group_is_some_blocks_in_another_order(numbered):
    store, block, per_group = numbered([60] * 10), 10, 6
    order = np.array(list(itertools.chain(*frames(make(store, block * per_group, block), 0))))
    groups = [set((order[first : first + 60] // block).tolist()) for first in range(0, 600, 60)]
    assert all(len(group) == per_group for group in groups)
    assert sorted(itertools.chain(*groups)) == list(range(60)) and groups != sorted(groups, key=min)
    assert any(abs(np.diff(sorted(group))).max() > 1 for group in groups)  # blocks of all over the store
    assert abs(np.corrcoef(np.arange(60), order[:60])[0, 1]) < 0.5 and (np.diff(order[:60]) == 1).sum() < 6


def test_context_is_that_of_the_store(make_store):
    store, splice = make_store([1, 30, 2, 50, 21, 9, 40, 3, 17], extras=("weights", "posteriors", "target_feats")), (-2, 0, 2)
    width = len(splice) * store.manifest.dim
    whole = Sampler(store, Partition(store), 0, 7, list(splice), torch.zeros(width), torch.ones(width), 3, CPU)
    names = ("inputs", "targets", "weights", "posterior_pdfs", "posterior_probs", "target_feats")

    def rows(sampler):
        found = [torch.cat([getattr(m, name).float().reshape(len(m), -1) for name in names], 1) for m in sampler.epoch(0)]
        return sorted(torch.cat(found).tolist())

    assert rows(make(store, 30, 4, splice=splice)) == rows(whole)


@pytest.fixture
def new_objects():
    """`gc.get_objects` gives only what the test makes; what was there before is not looked at."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("new_objects")
def test_memory_holds_two_groups(make_store):
    dim = 37
    store = make_store([40] * 60, dim=dim)
    sampler, most = make(store, 200, 50, splice=(0,)), 0
    for _ in sampler.epoch(0):
        found = {t.untyped_storage().data_ptr(): t.shape[0] for t in gc.get_objects()
                 if type(t) is torch.Tensor and t.dim() == 2 and t.shape[1] == dim and t.shape[0] > 7}
        most = max(most, sum(found.values()))
    context = 4 * 2 * 2 + 7 * 5  # of four blocks, and of the frames that fill up a minibatch
    assert 200 <= most <= 2 * (200 + context)


def test_groups_that_are_too_small_are_refused(make_store):
    with pytest.raises(UserError, match=r"--randomizer-size 6: expected 0, or as many frames as a minibatch \(7\)"):
        make(make_store([40]), 6, 2)
    with pytest.raises(UserError, match="too few for 3 splits x 1 blocks; use fewer workers or blocks, or smaller ones"):
        make(make_store([40]), 20, 20, splits=3)


def test_the_next_result_is_made_while_one_is_used():
    made, go = [], threading.Event()

    def task(number):
        if number == 1:
            go.wait(10)
        made.append(number)
        return number

    results = ahead((lambda number=number: task(number)) for number in range(3))
    assert next(results) == 0 and made == [0]  # the second waits in its thread
    go.set()
    assert list(results) == [1, 2] and made == [0, 1, 2]
    broken = ahead([lambda: 1, lambda: 1 // 0])
    assert next(broken) == 1
    with pytest.raises(ZeroDivisionError):
        next(broken)
    assert list(ahead([])) == []


@pytest.mark.parametrize("sharded", [False, True])
def test_a_store_does_not_stay_in_memory(make_store, tmp_path, sharded):
    """Only what a group needs is in memory as long as it is read: not the pages of all groups before."""
    stores = [make_store([2000] * 20, dim=100, name=name, utt=name) for name in ("one", "two")[:1 + sharded]]  # 16 MB each
    if sharded:
        combine(tmp_path / "both", [store.path for store in stores])
    store = FrameStore(tmp_path / "both") if sharded else stores[0]
    files = [one.path / "feats.bin" for one in stores]
    seen = [resident(files) for number, _ in enumerate(make(store, 4000, 1000, 256).epoch(0)) if number % 8 == 0]
    assert len(seen) > 15 and 0 < max(seen) < 0.5 * store.feats.nbytes, f"{max(seen)} of {store.feats.nbytes} bytes"
