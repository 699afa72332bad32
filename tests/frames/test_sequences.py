"""Minibatches of sequences: every frame trained on once, in its utterance's order, with the context it should have; resumable."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.errors import UserError
from pykaldist.frames.packed import packed_grid
from pykaldist.frames.sampler import Partition
from pykaldist.frames.sequences import Chunk, SequenceOptions, SequenceSampler, cheapest_shapes, windows

CPU = torch.device("cpu")
LENGTHS = [13, 5, 21, 1, 8, 34, 9]
HOW = {"whole": SequenceOptions("whole", 3), "chunks": SequenceOptions("chunks", 3, "2-5+4"), "streams": SequenceOptions("streams", 3, "4")}


def sampler(store, options, splits=1, blocks=1, split=0, padded=False):
    """Inputs are the frames' numbers in the store, so that a row says which it is."""
    numbered = np.arange(len(store), dtype=np.float32)[:, None].repeat(store.manifest.dim, 1)
    store.feats = numbered
    dim, partition = store.manifest.dim, Partition(store, splits, blocks, "utterance")
    return SequenceSampler(store, partition, split, options, [0], torch.zeros(dim), torch.ones(dim), 3, CPU, padded=padded)


def rows(minibatch):
    """(frame, weight, step, sequence) of each row."""
    step = np.repeat(np.arange(len(minibatch.sequences.sizes)), minibatch.sequences.sizes)
    sequence = np.concatenate([np.arange(size) for size in minibatch.sequences.sizes])
    weights = np.ones(len(step)) if minibatch.weights is None else minibatch.weights.numpy()
    return minibatch.inputs[:, 0].long().numpy(), weights, step, sequence


@settings(max_examples=25)
@given(lengths=st.lists(st.integers(1, 40), min_size=6, max_size=12), how=st.sampled_from(sorted(HOW)), splits=st.integers(1, 3),
       blocks=st.integers(1, 2), streams=st.integers(1, 5))
def test_no_frame_is_lost_and_none_comes_twice(make_store, lengths, how, splits, blocks, streams):
    store = make_store(lengths)
    options = SequenceOptions(how, streams, HOW[how].chunk)
    trained = []
    for split in range(splits):
        one = sampler(store, options, splits, blocks, split)
        minibatches = [(rows(m), len(m), m.index, m.last) for m in one.epoch(2)]
        assert len(minibatches) == one.minibatches == one.block_ends(2)[-1] and minibatches[-1][3]
        assert sum(count for _, count, _, _ in minibatches) == sum(one.sizes)
        trained += [frames[weights == 1] for (frames, weights, _, _), *_ in minibatches]
        scored = [rows(m) for m in one.in_order()]
        assert sum(int(weights.sum()) for _, weights, *_ in scored) == sum(one.sizes)
    assert np.array_equal(np.sort(np.concatenate(trained)), np.arange(len(store)))


@pytest.mark.parametrize("how", ["whole", "chunks"])
def test_rows_of_a_sequence_are_consecutive_frames_of_one_utterance(make_store, how):
    store = make_store(LENGTHS)
    utterance = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
    for minibatch in sampler(store, HOW[how]).epoch(0):
        assert minibatch.sequences.sizes == sorted(minibatch.sequences.sizes, reverse=True)
        frames, weights, step, sequence = rows(minibatch)
        for number in range(minibatch.sequences.sizes[0]):
            own, place = frames[sequence == number], step[sequence == number]
            assert np.array_equal(own, own[0] + place) and len(set(utterance[own])) == 1
            if how == "whole":
                assert len(own) == LENGTHS[utterance[own[0]]]
            else:
                chunk = own[weights[sequence == number] == 1]
                first = store.offsets[utterance[own[0]]]
                last = store.offsets[utterance[own[0]] + 1] - 1
                assert (chunk[0] - first) % 5 == 0 and (len(chunk) == 5 or chunk[-1] == last)
                assert own[0] == max(chunk[0] - 2, first) and own[-1] == min(chunk[-1] + 4, last)


def test_streams_go_on_from_minibatch_to_minibatch_and_forget_where_an_utterance_begins(make_store):
    store = make_store(LENGTHS)
    starts = set(store.offsets[:-1].tolist())
    before: dict[int, int] = {}
    cut = 0
    for minibatch in sampler(store, HOW["streams"]).epoch(0):
        frames, _, step, sequence = rows(minibatch)
        s = minibatch.sequences
        assert s.continues == (minibatch.index > 0) and (s.leaves == len(s.sizes) - 1 or minibatch.last)
        assert s.place == (0, 0, minibatch.index)
        for frame, t, stream in zip(frames.tolist(), step.tolist(), sequence.tolist(), strict=True):
            kept = True if t not in s.kept else bool(s.kept[t][stream])
            if stream not in before:
                cut += frame not in starts
            elif kept:
                assert frame == before[stream] + 1 and frame not in starts
            else:
                assert frame in starts
            before[stream] = frame
    assert cut <= 2  # of 3 streams, the first begins with an utterance


@pytest.mark.parametrize("how", sorted(HOW))
def test_an_epoch_resumes_anywhere_and_is_another_one_each_time(make_store, how):
    store = make_store(LENGTHS)

    def take(epoch, start=0):
        return [(m.index, m.seed, m.sequences.sizes, sorted(m.sequences.kept), m.inputs.clone(), m.targets.clone())
                for m in sampler(store, HOW[how], blocks=2).epoch(epoch, start)]

    whole = take(1)
    for start in range(len(whole)):
        rest = take(1, start)
        assert len(rest) == len(whole) - start
        for one, other in zip(rest, whole[start:], strict=True):
            assert one[:4] == other[:4] and torch.equal(one[4], other[4]) and torch.equal(one[5], other[5])
    others = [take(epoch) for epoch in range(2, 8)]  # of few utterances one epoch may be as another
    assert any(one[4].shape != other[4].shape or not torch.equal(one[4], other[4]) for epoch in others
               for one, other in zip(whole, epoch, strict=True))


def test_whole_utterances_come_with_others_of_their_length(make_store):
    lengths = [10, 50, 11, 52, 10, 49, 11, 51]
    for minibatch in sampler(make_store(lengths), SequenceOptions("whole", 4)).epoch(0):
        assert len(minibatch.sequences.sizes) - len(minibatch) / 4 < 3


@pytest.mark.parametrize(("splits", "size"), [(2, 1), (4, 1), (3, 2)])
def test_workers_have_whole_utterances_of_like_length_at_the_same_time(make_store, splits, size):
    """So that little is waited for the longest, however often they exchange; in an order that is another one each epoch."""
    lengths = np.random.default_rng(5).integers(10, 200, 121).tolist()
    store, orders = make_store(lengths), []
    for epoch in (0, 1):
        frames = [[len(m) for m in sampler(store, SequenceOptions("whole", size), splits, split=split).epoch(epoch)]
                  for split in range(splits)]
        waited = sum(max(together) for together in itertools.zip_longest(*frames, fillvalue=0))
        assert waited < 1.1 * sum(lengths) / splits, waited
        orders.append(frames[0])
    assert orders[0] != orders[1] and sorted(orders[0]) != orders[0] != sorted(orders[0], reverse=True)


def test_chunks_of_one_utterance_are_more_rows_than_it_has(make_store):
    """Three utterances of 12 frames, each cut into 3 chunks of 4, whose context reaches to its ends."""
    one = sampler(make_store([12, 12, 12]), SequenceOptions("chunks", 9, "8-4+8"))
    [minibatch] = one.in_order()
    assert len(minibatch.inputs) == sum(minibatch.sequences.sizes) == 3 * (12 + 12 + 12) <= one.capacity


def test_scoring_shares_minibatches_out(make_store):
    one = sampler(make_store(LENGTHS), HOW["chunks"], blocks=2)
    whole = [m.inputs.clone() for m in one.in_order()]
    parts = [[(m.index, m.inputs.clone()) for m in one.in_order(part, 3)] for part in range(3)]
    for index, inputs in [item for part in parts for item in part]:
        assert torch.equal(inputs, whole[index])
    assert sum(map(len, parts)) == len(whole)


def test_frame_weights_of_the_store_and_context_go_together(make_store):
    store = make_store(LENGTHS, extras=("weights",))
    for minibatch in sampler(store, HOW["chunks"]).epoch(0):
        frames, weights, *_ = rows(minibatch)
        assert ((weights == store.weights[frames]) | (weights == 0)).all()
        assert (weights > 0).sum() <= len(minibatch) < len(frames)


@settings(max_examples=40)
@given(frames=st.integers(1, 90), size=st.integers(1, 12), left=st.integers(0, 5), right=st.integers(0, 5), data=st.data())
def test_windows_cover_an_utterance_with_the_overlap_that_is_asked_for(frames, size, left, right, data):
    overlap = data.draw(st.integers(0, size - 1))
    number, inside, sequences = windows(frames, Chunk(left, size, right), overlap)
    assert sum(sequences.sizes) == len(number) and sequences.sizes == sorted(sequences.sizes, reverse=True)
    counts = np.bincount(number[inside], minlength=frames)
    assert counts.min() >= 1 and counts.max() <= -(-size // (size - overlap))
    if overlap == 0:
        assert counts.max() == 1


@pytest.mark.parametrize("how", sorted(HOW))
@pytest.mark.parametrize("extras", [(), ("weights",)])
def test_padded_minibatches_have_the_same_frames_in_few_shapes(make_store, how, extras):
    store = make_store(LENGTHS * 4, extras=extras)
    packed, padded = sampler(store, HOW[how], blocks=2), sampler(store, HOW[how], blocks=2, padded=True)
    shapes, addresses, padding = set(), set(), 0
    for one, other in zip(packed.epoch(1), padded.epoch(1), strict=True):
        assert (len(one), one.index, one.last, one.seed) == (len(other), other.index, other.last, other.seed)
        s, real = other.sequences, other.sequences.real[:, 0].bool()
        assert len(other.inputs) == sum(s.sizes) <= padded.training_capacity and set(s.sizes) == {3}
        assert s.continues == one.sequences.continues and s.padding == int((~real).sum()) and not other.weights[~real].any()
        shapes.add(len(s.sizes))
        addresses.add((other.inputs.data_ptr(), other.weights.data_ptr(), s.real.data_ptr() - 4 * len(other.inputs)))
        padding += s.padding
        (frames, weights, step, sequence), (own, own_weights, own_step, own_sequence) = rows(one), rows(other)
        places = list(zip(own_step[real], own_sequence[real], strict=True))
        assert dict(zip(zip(step, sequence, strict=True), zip(frames, weights, strict=True), strict=True)) == \
            dict(zip(places, zip(own[real], own_weights[real], strict=True), strict=True))
        for t, kept in s.kept.items():
            there, begins = step == t, one.sequences.kept.get(t)
            if t or s.continues:
                assert kept[: there.sum(), 0].tolist() == ([1.0] * int(there.sum()) if begins is None else begins[:, 0].tolist())
        assert bool(s.kept) == (how == "streams") and (s.leaves == len(s.sizes) - 1 or not s.kept)
    assert len(shapes) <= {"whole": 7, "chunks": 1, "streams": 1}[how] and len(addresses) == 1 and padding


def test_padded_utterances_have_their_names_labels_and_lengths(make_store):
    store = make_store(LENGTHS, extras=("labels",))
    packed, padded = sampler(store, HOW["whole"]), sampler(store, HOW["whole"], padded=True)
    for one, other in zip(packed.epoch(1), padded.epoch(1), strict=True):
        assert other.utts == one.utts and torch.equal(other.labels, one.labels) and torch.equal(other.label_lengths, one.label_lengths)
        assert other.sequences.real_lengths().tolist() == one.sequences.real_lengths().tolist()
        assert other.sequences.real_lengths().sum() == other.sequences.real.sum() == len(other)


def test_cross_validation_stays_packed(make_store):
    for options in HOW.values():
        assert all(m.sequences.real is None for m in sampler(make_store(LENGTHS), options, padded=True).in_order())


@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=10), count=st.integers(1, 4))
def test_the_cheapest_shapes(lengths, count):

    def padded_rows(shapes):
        return sum(min(shape for shape in shapes if shape >= length) for length in lengths)

    found, different = cheapest_shapes(np.array(lengths), count), sorted(set(lengths))
    assert found == sorted(set(found)) and found[-1] == different[-1] and len(found) == min(count, len(different))
    others = itertools.combinations(different[:-1], len(found) - 1)
    assert padded_rows(found) == min(padded_rows((*other, different[-1])) for other in others)


def test_the_shapes_of_long_utterances():
    lengths = np.arange(1, 3001)
    shapes = cheapest_shapes(lengths, 8)
    assert len(shapes) == 8 and all(shape % 12 == 0 for shape in shapes) and 3000 <= shapes[-1] < 3012


def test_packed_grid():
    step, sequence, sizes = packed_grid(torch.tensor([3, 2, 2]))
    assert sizes == [3, 3, 1] and step.tolist() == [0, 0, 0, 1, 1, 1, 2] and sequence.tolist() == [0, 1, 2, 0, 1, 2, 0]


@pytest.mark.parametrize(("options", "words"), [
    (("streams", 4, "2-5+1"), "take no context"), (("whole", 4, "5"), "are not cut"), (("chunks", 0, None), "--num-streams 0"),
    (("chunks", 4, "21-0+21"), "expected its frames"), (("chunks", 4, "many"), "expected its frames")])
def test_cuts_that_make_no_sense_are_refused(options, words):
    with pytest.raises(UserError, match=words):
        SequenceOptions(*options).parts()
