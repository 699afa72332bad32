"""The division of utterances into chunks: what it covers, its cost against all splits there are, Kaldi's own chunks."""

from __future__ import annotations

import gzip
import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykaldist.errors import UserError
from pykaldist.frames.chunk_widths import UtteranceSplitter, parse_widths

FACTOR = 3


@given(frames=st.integers(1, 900), widths=st.lists(st.integers(2, 40), min_size=1, max_size=3, unique=True), seed=st.integers(0, 5))
def test_chunks_lie_within_the_utterance_and_count_each_of_its_frames_once(frames, widths, seed):
    widths = [FACTOR * width for width in widths]
    chunks = UtteranceSplitter(widths, FACTOR).chunks(frames, np.random.default_rng(seed))
    outputs = -(-frames // FACTOR)
    total = np.zeros(outputs)
    for chunk in chunks:
        assert chunk.frames in widths and chunk.first % FACTOR == 0 and chunk.first >= 0
        assert chunk.first // FACTOR + chunk.frames // FACTOR <= outputs
        total[chunk.first // FACTOR:][:chunk.frames // FACTOR] += chunk.weights
    assert np.allclose(total[total > 0], 1.0)
    assert bool(chunks) == (frames >= min(widths))
    assert [chunk.first for chunk in chunks] == sorted(chunk.first for chunk in chunks)
    others = [chunk.frames for chunk in chunks if chunk.frames != widths[0]]
    assert len(others) <= 2
    left_out, overlap = int((total == 0).sum()), sum(chunk.frames // FACTOR for chunk in chunks) - int((total > 0).sum())
    assert not (left_out and overlap)


def test_a_split_costs_no_more_than_the_cheapest_and_two():
    splitter = UtteranceSplitter([150, 110, 100])
    every = [(*others, *[150] * count) for count in range(5) for n in range(3) for others in itertools.product([110, 100], repeat=n)]

    def cost(split, frames):
        return sum(split) - frames if sum(split) > frames else 2 * (frames - sum(split))

    for frames in range(100, splitter.tabulated + 1):
        possible = [split for split in every if split and max(split) <= frames]
        least = min(cost(split, frames) for split in possible)
        wanted = {tuple(sorted(split)) for split in possible if cost(split, frames) < least + 1.9999}
        assert set(splitter.splits(frames)) == wanted


def test_a_long_utterance_has_primary_chunks_but_for_two():
    sizes = [chunk.frames for chunk in UtteranceSplitter([150, 110, 100]).chunks(15_037, np.random.default_rng(0))]
    assert sizes.count(150) >= len(sizes) - 2 and abs(sum(sizes) - 15_037) < 20
    assert sizes in (sorted(sizes), sorted(sizes, reverse=True))


def test_chunks_of_kaldis_examples_are_among_those_that_can_be_drawn(golden: Path):
    text = gzip.decompress((golden / "chain/egs.txt.gz").read_bytes()).decode("latin-1")
    kaldis: dict[str, list[tuple[int, int]]] = {}
    weights: dict[str, list[list[float]]] = {}
    example = r"(\S+) <Nnet3ChainEg>.*?<NnetChainSup> output <I1V> (\d+).*?<DW2>\s+\[([^\]]*)\]"
    for key, count, values in re.findall(example, text, re.DOTALL):
        utt, first = key.rsplit("-", 1)
        kaldis.setdefault(utt, []).append((int(first), FACTOR * int(count)))
        weights.setdefault(utt, []).append([float(value) for value in values.split()])
    lengths = dict(zip((golden / "chain/utts").read_text().split(), (98, 68, 88, 258, 128, 248), strict=True))
    assert kaldis.keys() == lengths.keys()
    splitter = UtteranceSplitter([90, 60], FACTOR)
    for utt, frames in lengths.items():
        drawn = {}
        for seed in range(300):
            chunks = splitter.chunks(frames, np.random.default_rng(seed))
            drawn[tuple((chunk.first, chunk.frames) for chunk in chunks)] = [chunk.weights.tolist() for chunk in chunks]
        assert tuple(kaldis[utt]) in drawn, utt
        assert drawn[tuple(kaldis[utt])] == weights[utt]


def test_widths_are_rounded_up_to_the_subsampling_factor():
    assert parse_widths("140,100,160", 3) == [141, 102, 162]
    for text in ("", "140;100", "140,-3", "140,0", "a"):
        with pytest.raises(UserError, match="chunk widths"):
            parse_widths(text)
