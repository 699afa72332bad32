"""Frames on a device: the same minibatches from a process's part of a store, from pieces of it, and from all of it; none lies there twice.

On a CPU a store stays memory-mapped; here it is copied, as to a GPU.
"""

from __future__ import annotations

import gc
import itertools

import numpy as np
import pytest
import torch

from pykaldist.frames.device_frames import SharedFrames, frame_bytes, together
from pykaldist.frames.sampler import Partition, Sampler, reach
from pykaldist.frames.sequences import SequenceOptions, SequenceSampler

CPU, EXTRAS = torch.device("cpu"), ("weights", "posteriors", "target_feats")
SPLICES = [(0,), (-2, -1, 0, 1, 2), (-3, 0), (1, 4)]


def live_bytes(dim: int) -> int:
    """The bytes of all features that lie in memory of their own: of tensors (rows, dim) which are no views."""
    found = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in gc.get_objects()
             if type(t) is torch.Tensor and t.dim() == 2 and t.shape[1] == dim}
    return sum(found.values())


def make(store, frames, splice, partition, sequences=None):
    how = (list(splice), torch.zeros(len(splice) * store.manifest.dim), torch.ones(len(splice) * store.manifest.dim), 3, CPU, frames)
    return SequenceSampler(store, partition, 0, sequences, *how) if sequences else Sampler(store, partition, 0, 7, *how)


def seen(sampler, splits, order):
    """All that the minibatches of these splits hold."""
    minibatches = [m for split in splits for m in (sampler.of_split(split).epoch(2) if order == "shuffled" else sampler.in_order(1, 3))]
    names = ("inputs", "targets", "weights", "posterior_pdfs", "posterior_probs", "target_feats")
    for minibatch in minibatches:
        yield from (getattr(minibatch, name).clone() for name in names)


def test_a_store_is_not_copied_on_a_cpu(make_store):
    store = make_store([30, 50, 21])
    shared = SharedFrames(store, CPU, (1, 1), room=1)
    shared.hold([np.arange(5)])
    assert shared.of(np.arange(100)).feats.data_ptr() == store.feats.ctypes.data and not shared.streamed


@pytest.mark.parametrize("splice", SPLICES)
@pytest.mark.parametrize("level", ["frame", "utterance"])
@pytest.mark.parametrize("order", ["shuffled", "in order"])
@pytest.mark.parametrize("held", ["part", "pieces of 40 frames", "pieces of 10,000 frames", "of others"])
def test_a_part_and_pieces_give_the_minibatches_of_the_whole(make_store, splice, level, order, held):
    store = make_store([1, 30, 2, 50, 21, 9, 40, 3, 17], extras=EXTRAS)
    partition, splits = Partition(store, 3, 2, level, 5), [1] if order == "shuffled" else [0]
    room = {"pieces of 40 frames": 40, "pieces of 10,000 frames": 10_000}.get(held)
    shared = SharedFrames(store, CPU, reach(list(splice)), room and room * frame_bytes(store) * 2, copied=True)
    sampler = make(store, shared, splice, partition)
    if not room:
        own = partition.parts([2]) if held == "of others" else partition.parts(splits) if order == "shuffled" else sampler.held_out(1, 3)
        shared.hold(own)
    assert shared.streamed == bool(room)
    expected = list(seen(make(store, None, splice, partition), splits, order))
    found = list(seen(sampler, splits, order))
    assert expected and all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("sequences", [SequenceOptions("whole", 2), SequenceOptions("chunks", 3, "4-6+3"),
                                       SequenceOptions("streams", 3, "5")])
@pytest.mark.parametrize("room", [None, 1])
def test_sequences_come_from_a_part_and_from_pieces(make_store, sequences, room):
    store = make_store([1, 30, 2, 50, 21, 9, 40, 3, 17], extras=EXTRAS)
    partition, splice = Partition(store, 2, 1, "utterance"), (-1, 0, 1)
    shared = SharedFrames(store, CPU, (1, 1), room, copied=True)
    shared.hold(partition.parts([1]))
    sampler = make(store, shared, splice, partition, sequences)
    assert max(len(m.inputs) for m in sampler.of_split(1).epoch(0)) <= sampler.capacity
    for order in ("shuffled", "in order"):  # in order: of another split, which is not held
        expected = list(seen(make(store, None, splice, partition, sequences), [1], order))
        assert all(torch.equal(a, b) for a, b in zip(seen(sampler, [1], order), expected, strict=True))


def test_a_process_holds_its_part_with_the_frames_around_it_once(make_store):
    dim = 37  # of no other tensor
    store = make_store([40] * 30, dim=dim)
    shared, whole = SharedFrames(store, CPU, (2, 2), copied=True), store.feats.nbytes
    before = live_bytes(dim)
    for level, most in (("utterance", 0.3), ("frame", 0.85)):
        partition = Partition(store, 4, 1, level)
        shared.hold(partition.parts([1]))  # that of the level before is freed first
        sampler = make(store, shared, (-2, -1, 0, 1, 2), partition)
        for _ in itertools.islice(sampler.of_split(1).epoch(0), 3):
            buffer = sampler.gather._rows.untyped_storage().nbytes()
            assert live_bytes(dim) - before - buffer == shared.of(partition.part(1, 0)).feats.nbytes
        assert shared.with_context(partition.parts([1])) * dim * 4 == shared.of(partition.part(1, 0)).feats.nbytes < most * whole
        del sampler
    shared.hold()
    held = shared.of(np.arange(len(store)))
    shared.hold(Partition(store, 2).parts([0]))
    assert shared.of(np.arange(len(store))) is held  # all are there: nothing is loaded again


@pytest.mark.parametrize("level", ["frame", "utterance"])
def test_pieces_stay_within_the_room(make_store, level):
    dim = 37
    store = make_store([40] * 60, dim=dim)
    partition, room = Partition(store, 2, 4, level), len(store) * frame_bytes(store) // 2
    shared = SharedFrames(store, CPU, (1, 1), room, readers=2, copied=True)
    shared.hold(partition.parts([0, 1]))
    assert shared.streamed
    before, most = live_bytes(dim), 0
    sampler = make(store, shared, (-1, 0, 1), partition)
    for n, _ in enumerate(zip(sampler.of_split(0).epoch(0), sampler.of_split(1).epoch(0), strict=False)):
        most = max(most, 0 if n % 20 else live_bytes(dim) - before - sampler.gather._rows.untyped_storage().nbytes())
    assert 0 < most * frame_bytes(store) / (4 * dim) <= room


def test_a_partition_is_the_same_whatever_the_type_of_its_numbers(make_store):
    store = make_store([40] * 6)
    expected = np.random.Generator(np.random.Philox(np.random.SeedSequence([3, 0]))).permutation(240)
    assert np.array_equal(Partition(store, 2, seed=3).part(1, 0), np.sort(expected[120:]))


@pytest.mark.gpu
def test_arrays_that_go_to_a_device_together(cuda):
    """Of several types, and of sizes that are no multiples of each other's; on a GPU in one copy."""
    arrays = [np.arange(5, dtype=np.int64), np.array([0.5], np.float32), np.zeros(0), np.array([1.5, -2.5]), np.array([3], np.uint8)]
    for device in (CPU, torch.device("cuda")):
        for array, found in zip(arrays, together(arrays, device), strict=True):
            assert found.device.type == device.type and found.cpu().numpy().dtype == array.dtype
            assert np.array_equal(found.cpu().numpy(), array)
    if cuda is not None:
        cuda.reset()
        together(arrays, torch.device("cuda"))
        assert cuda.launches == 1 and not cuda.synchronisations
