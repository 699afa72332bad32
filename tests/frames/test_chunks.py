"""Minibatches of chunks: each chunk once an epoch, in frames of its utterance, with Kaldi's inputs; and what a chunk store refuses."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from chain_egs import merged_egs

from pykaldist.errors import UserError
from pykaldist.frames.chunk_store import ChunkStore, PackedChunk, pack_chunks
from pykaldist.frames.chunk_widths import ChunkSpan, UtteranceSplitter
from pykaldist.frames.chunks import ChunkSampler
from pykaldist.frames.lattices import Lattices
from pykaldist.frames.minibatch_rule import MinibatchRule
from pykaldist.frames.sampler import Partition
from pykaldist.frames.store import FrameStore, pack
from pykaldist.io.tables import read_archive

CPU, FACTOR, CONTEXT = torch.device("cpu"), 3, (4, 7)
LENGTHS = [70, 30, 131, 61, 90, 34, 250, 33]


def line(frames: int, label: int) -> Lattices:
    """A numerator with one path, of one pdf."""
    arcs = np.arange(frames, dtype=np.int32)
    return Lattices(np.array([0, frames + 2]), np.array([0, frames + 1]), np.array([0, frames]), np.array([0, frames]),
                    np.append(arcs, frames).astype(np.int32), np.append(arcs, frames).astype(np.int32) + 1,
                    np.full(frames + 1, label, np.float32), np.zeros(frames + 1, np.float32), np.minimum(np.arange(frames + 2), frames),
                    arcs, arcs, np.full(frames, label, np.int32))


@pytest.fixture
def packed(make_store, tmp_path: Path) -> tuple[FrameStore, ChunkStore]:
    """A frame store and the chunks of its utterances; the pdf of a chunk's numerator is its number, and so are its i-vectors."""
    store = make_store(LENGTHS)
    splitter, generator, chunks = UtteranceSplitter([60, 33], FACTOR), np.random.default_rng(1), []
    for utt, frames in enumerate(LENGTHS):
        for span in splitter.chunks(frames, generator):
            chunks.append(PackedChunk(utt, span, line(span.frames // FACTOR, len(chunks)), np.full(2, len(chunks))))
    pack_chunks(chunks, store, 100, FACTOR, [60, 33], {}, tmp_path / "chunks")
    store.feats = np.arange(len(store), dtype=np.float32)[:, None].repeat(store.manifest.dim, 1)  # a frame's number in the store
    return store, ChunkStore(tmp_path / "chunks", store)


def sampler(packed: tuple[FrameStore, ChunkStore], splits: int = 1, split: int = 0, blocks: int = 1, num_chunks: int = 3) -> ChunkSampler:
    store, chunks = packed
    rule = MinibatchRule(str(num_chunks))
    return ChunkSampler(store, chunks, Partition(store, splits, blocks, "utterance"), split, rule, CONTEXT, 5, CPU)


def numbers(minibatch) -> list[int]:
    return [int(one.transition_id[0]) for one in minibatch.chunks.numerators]


@pytest.mark.parametrize(("splits", "blocks"), [(1, 1), (2, 2), (3, 1)])
def test_each_chunk_comes_once_an_epoch_and_in_another_order_in_the_next(packed, splits, blocks):
    seen: list[list[int]] = [[], []]
    for split in range(splits):
        one = sampler(packed, splits, split, blocks)
        for epoch in range(2):
            minibatches = [(numbers(m), len(m), m.last, m.epochs_done) for m in one.epoch(epoch)]
            assert len(minibatches) == one.minibatches == one.block_ends(epoch)[-1]
            assert sum(count for _, count, _, _ in minibatches) == sum(one.sizes) == one.frames_between(epoch, 0, one.minibatches)
            assert [last for _, _, last, _ in minibatches] == [False] * (len(minibatches) - 1) + [True]
            assert minibatches[-1][3] == pytest.approx(epoch + 1 - 1 / len(minibatches))
            seen[epoch] += [number for chunks, *_ in minibatches for number in chunks]
    assert sorted(seen[0]) == sorted(seen[1]) == list(range(len(packed[1]))) and seen[0] != seen[1]


def test_inputs_are_the_chunks_frames_with_context_and_a_shift_in_each_epoch(packed):
    store, chunks = packed
    shifts = {number: [] for number in range(len(chunks))}
    for epoch in range(FACTOR):
        for minibatch in sampler(packed).epoch(epoch):
            own = minibatch.chunks
            frames = minibatch.inputs[:, 0].view(-1, own.sequences).T.numpy()
            assert own.ivectors[:, 0].tolist() == numbers(minibatch) and len(own.weights) == own.output_frames * own.sequences
            for n, number in enumerate(numbers(minibatch)):
                begin, end = store.offsets[chunks.utt[number]], store.offsets[chunks.utt[number] + 1]
                assert own.output_frames * FACTOR == chunks.frames[number]
                time = np.arange(-CONTEXT[0], chunks.frames[number] - FACTOR + 1 + CONTEXT[1])
                wanted = {shift: np.clip(begin + chunks.first[number] + time + shift, begin, end - 1) for shift in (-1, 0, 1)}
                found = [shift for shift, values in wanted.items() if np.array_equal(frames[n], values)]
                assert len(found) == 1
                shifts[number] += found
    assert all(sorted(found) == [-1, 0, 1] for found in shifts.values())
    assert len({tuple(found) for found in shifts.values()}) > 1


def test_held_out_chunks_have_no_shift_and_are_shared_out_over_processes(packed):
    whole = [(numbers(m), m.inputs.clone()) for m in sampler(packed).in_order()]
    shared = [[(numbers(m), m.inputs.clone()) for m in sampler(packed).in_order(part, 2)] for part in range(2)]
    for number, (chunks, inputs) in enumerate(whole):
        other = shared[number % 2][number // 2]
        assert chunks == other[0] and torch.equal(inputs, other[1])
    assert sorted(n for chunks, _ in whole for n in chunks) == list(range(len(packed[1])))
    first = packed[0].offsets[packed[1].utt[whole[0][0]]] + packed[1].first[whole[0][0]]
    at_zero = whole[0][1].view(-1, len(whole[0][0]), whole[0][1].shape[1])[CONTEXT[0], :, 0]
    assert at_zero.tolist() == first.tolist()


def test_an_epoch_goes_on_at_any_minibatch(packed):
    one = sampler(packed, blocks=2)
    whole = [(numbers(m), m.seed, m.inputs.clone()) for m in one.epoch(1)]
    for start in range(len(whole)):
        rest = [(numbers(m), m.seed, m.inputs.clone()) for m in one.epoch(1, start)]
        assert all(a[:2] == b[:2] and torch.equal(a[2], b[2]) for a, b in zip(whole[start:], rest, strict=True))


def test_a_worker_without_chunks_is_refused(make_store, tmp_path):
    store = make_store([40, 41, 42])
    pack_chunks([PackedChunk(0, ChunkSpan(0, 30, np.ones(10, np.float32)), line(10, 1))], store, 5, FACTOR, [30], {}, tmp_path / "c")
    chunks = ChunkStore(tmp_path / "c", store)
    with pytest.raises(UserError, match="has no chunk for worker"):
        for split in range(3):
            ChunkSampler(store, chunks, Partition(store, 3, 1, "utterance"), split, MinibatchRule("2"), CONTEXT, 1, CPU)


def test_minibatches_are_those_that_kaldi_makes_of_its_examples(golden: Path, tmp_path: Path):
    chain = golden / "chain"
    feats = dict(read_archive(chain / "feats.ark"))
    utts = (chain / "utts").read_text().split()
    pack(utts, lambda utt: feats[utt], lambda utt: np.zeros(len(feats[utt]), np.int32), 112, tmp_path / "store")
    store = FrameStore(tmp_path / "store")
    keys = [re.fullmatch(r"(\S+)-(\d+)", key).groups() for key in chunk_keys(chain)]
    for (key, merged), (first_key, count) in zip(merged_egs(chain, 112, 6).items(), ((0, 20), (1, 30)), strict=True):
        own = [(utt, int(first)) for (utt, first), frames in zip(keys, chunk_lengths(chain), strict=True) if frames == count]
        weights = merged.deriv_weights.view(count, -1).T.numpy()
        packed_chunks = [PackedChunk(utts.index(utt), ChunkSpan(first, FACTOR * count, weights[n]), merged.numerators[n])
                         for n, (utt, first) in enumerate(own)]
        pack_chunks(packed_chunks, store, 112, FACTOR, [FACTOR * count], {}, tmp_path / key)
        chunks = ChunkStore(tmp_path / key, store)
        one = ChunkSampler(store, chunks, Partition(store, level="utterance"), 0, MinibatchRule("6"), (6, 6), 1, CPU)
        [minibatch] = one.in_order()
        ours = minibatch.inputs.view(-1, 6, store.manifest.dim)
        np.testing.assert_allclose(ours, merged.feats[:len(ours)], atol=0.02 * float(merged.feats.abs().max()))  # egs are compressed
        np.testing.assert_array_equal(minibatch.chunks.weights, merged.deriv_weights)
        for mine, kaldis in zip(minibatch.chunks.numerators, merged.numerators, strict=True):
            for name in ("source", "target", "graph", "string", "entry", "frame", "transition_id"):
                np.testing.assert_array_equal(getattr(mine, name), getattr(kaldis, name))
        assert first_key == int(key.split("-")[1])


def chunk_keys(chain: Path) -> list[str]:
    return [key for key, _ in kaldis_chunks(chain)]


def chunk_lengths(chain: Path) -> list[int]:
    return [frames for _, frames in kaldis_chunks(chain)]


def kaldis_chunks(chain: Path) -> list[tuple[str, int]]:
    """The keys of Kaldi's examples, and their output frames."""
    from chain_files import fsts

    return [(key, frames) for key, (_, frames) in fsts(chain / "egs.txt.gz").items()]


def test_damage_is_found_and_named(packed, tmp_path, make_store):
    store, chunks = packed
    chunks.verify()
    with open(chunks.path / "graph.bin", "r+b") as stream:
        stream.write(b"\1\2\3\4")
    with pytest.raises(UserError, match=r"graph\.bin does not match its checksum"):
        chunks.verify()
    with open(chunks.path / "pdf.bin", "ab") as stream:
        stream.write(b"\0")
    with pytest.raises(UserError, match=r"pdf\.bin has .* bytes"):
        ChunkStore(chunks.path, store)
    (tmp_path / "other").mkdir()
    with pytest.raises(UserError, match="no chunk store"):
        ChunkStore(tmp_path / "other", store)


def test_chunks_of_another_frame_store_are_refused(packed, tmp_path):
    feats = np.zeros((40, 2), np.float32)
    pack(["a", "b"], lambda utt: feats, lambda utt: np.zeros(40, np.int32), 2, tmp_path / "elsewhere")
    with pytest.raises(UserError, match="chunks of other utterances"):
        ChunkStore(packed[1].path, FrameStore(tmp_path / "elsewhere"))


def test_nothing_to_pack_says_why(make_store, tmp_path):
    with pytest.raises(UserError, match=r"gives a chunk: too short \(utt1\)"):
        pack_chunks([], make_store([5]), 3, FACTOR, [60], {"utt1": "too short"}, tmp_path / "none")


def test_the_ends_of_utterances_have_a_context_of_their_own(packed):
    """Frames hold their number; so the first and the last row of a minibatch say how far a chunk reaches."""
    store, chunks = packed
    one = ChunkSampler(store, chunks, Partition(store, level="utterance"), 0, MinibatchRule("3"), (9, 6), 1, CPU, edges=(0, 3))
    found = set()
    for minibatch in one.in_order():
        own, sequences = minibatch.chunks, minibatch.chunks.sequences
        rows = minibatch.inputs.view(-1, sequences, store.manifest.dim)[:, :, 0].numpy()
        assert len(rows) == sum(own.context) + (own.output_frames - 1) * FACTOR + 1
        for n, chunk in enumerate(numbers(minibatch)):
            utt, first = chunks.utt[chunk], chunks.first[chunk]
            expected = (0 if first == 0 else 9, 3 if chunk == np.flatnonzero(chunks.utt == utt)[-1] else 6)
            assert own.context == expected
            begin, end = store.offsets[utt], store.offsets[utt + 1]
            last = first + (own.output_frames - 1) * FACTOR + expected[1]
            assert rows[0, n] == max(begin + first - expected[0], begin) and rows[-1, n] == min(begin + last, end - 1)
            found.add(chunk)
    assert found == set(range(len(chunks)))
