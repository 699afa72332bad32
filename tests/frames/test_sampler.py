"""The sampler: no frame lost, the same for any layout, resumable, and the gather equal to splicing the slow way."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.errors import UserError
from pykaldist.frames.sampler import Partition, Sampler, splice_statistics

CPU = torch.device("cpu")


def spliced(store, splice):
    """Every frame spliced, utterance by utterance, frame by frame."""
    rows = []
    for start, end in zip(store.offsets, store.offsets[1:], strict=False):
        feats = np.asarray(store.feats[start:end], np.float64)
        for t in range(len(feats)):
            rows.append(np.concatenate([feats[min(max(t + o, 0), len(feats) - 1)] for o in splice]))
    return np.stack(rows)


def sampler(store, partition=None, split=0, splice=(0,), size=7, seed=3):
    width = len(splice) * store.manifest.dim
    return Sampler(store, partition or Partition(store), split, size, list(splice), torch.zeros(width), torch.ones(width), seed, CPU)


@settings(max_examples=25)
@given(lengths=st.lists(st.integers(1, 40), min_size=6, max_size=12), splits=st.integers(1, 3), blocks=st.integers(1, 2),
       level=st.sampled_from(["frame", "utterance"]), seed=st.integers(0, 9))
def test_parts_are_disjoint_and_cover_the_store(make_store, lengths, splits, blocks, level, seed):
    store = make_store(lengths)
    partition = Partition(store, splits, blocks, level, seed) if len(store) >= splits * blocks else None
    if partition is None:
        return
    parts = [partition.part(s, b) for s in range(splits) for b in range(blocks)]
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(store)))
    if level == "frame":
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("level", ["frame", "utterance"])
def test_indices_of_four_bytes_give_the_minibatches_of_eight(make_store, level):
    store = make_store([30, 50, 21, 9])
    epochs = []
    for dtype in (np.int32, np.int64):
        partition = Partition(store, 2, 2, level)
        partition.dtype = dtype
        assert partition.part(0, 0).dtype == (np.int32 if level == "frame" else dtype)
        epochs.append(torch.cat([m.inputs.clone() for m in sampler(store, partition).epoch(1)]))
    assert torch.equal(*epochs)


@pytest.mark.parametrize("blocks", [1, 3])
def test_an_epoch_has_every_frame_once_in_a_new_order(make_store, blocks):
    store = make_store([30, 50, 21])
    one = sampler(store, Partition(store, 1, blocks))
    epochs = [torch.cat([m.inputs.clone() for m in one.epoch(e)]) for e in range(2)]
    assert not torch.equal(epochs[0], epochs[1])
    for epoch in epochs:
        assert np.array_equal(np.unique(epoch.numpy(), axis=0), np.unique(store.feats, axis=0))
    batches = list(one.epoch(0))
    assert len(batches) == one.minibatches and [m.last for m in batches] == [False] * (len(batches) - 1) + [True]
    assert sum(len(m) for m in batches) == one.frames == len(store)


def test_the_rest_of_an_epoch_is_the_same_when_resumed(make_store):
    store = make_store([30, 50, 21])
    one = sampler(store, Partition(store, 1, 2))
    whole = [(m.index, m.targets.clone(), m.inputs.clone()) for m in one.epoch(4)]
    for start in (0, 1, 7, 8, len(whole) - 1):
        rest = [(m.index, m.targets.clone(), m.inputs.clone()) for m in sampler(store, Partition(store, 1, 2)).epoch(4, start)]
        assert len(rest) == len(whole) - start
        assert all(a[0] == b[0] and torch.equal(a[1], b[1]) and torch.equal(a[2], b[2]) for a, b in zip(rest, whole[start:], strict=True))


@pytest.mark.parametrize("splice", [(0,), (-2, -1, 0, 1, 2), (-5, 0, 3)])
def test_gather_and_statistics_equal_splicing_the_slow_way(make_store, splice):
    store = make_store([1, 2, 3, 40, 7], dim=3)
    expected = spliced(store, splice)
    shift, scale = splice_statistics(store, list(splice))
    assert np.allclose(shift, expected.mean(0), atol=1e-5) and np.allclose(scale, 1 / expected.std(0), rtol=1e-4)
    got = Sampler(store, Partition(store), 0, 10, list(splice), shift, scale, 0, CPU)
    inputs = torch.cat([m.inputs.clone() for m in got.in_order()])
    targets = torch.cat([m.targets.clone() for m in got.in_order()])
    assert np.allclose(inputs, (expected - expected.mean(0)) / expected.std(0), atol=1e-4)
    assert np.array_equal(targets, store.targets)


def test_all_that_a_store_holds_comes_with_the_frames_in_buffers_that_stay(make_store):
    names = ("weights", "posterior_pdfs", "posterior_probs", "target_feats")
    store = make_store([30, 50, 21], extras=("weights", "posteriors", "target_feats"))
    one = sampler(store)
    got = [{name: getattr(m, name).clone() for name in (*names, "inputs")} for m in one.epoch(1)]
    feats = torch.cat([m["inputs"] for m in got]).numpy()
    order = [int(np.flatnonzero((store.feats == row).all(1))[0]) for row in feats]
    for name in names:
        assert np.array_equal(torch.cat([m[name] for m in got]), getattr(store, name)[order])
    addresses = {m.addresses() for m in one.epoch(1)}
    assert len(addresses) == 2  # full minibatches and the last, smaller one
    assert all(len(set(a)) == len(a) == 7 for a in addresses)


def test_more_parts_than_utterances_is_an_error_in_words(make_store):
    with pytest.raises(UserError, match="2 utterances, too few for 3 splits x 1 blocks"):
        Partition(make_store([5, 5]), 3, 1, "utterance")
