"""Frames chosen at random of those that come: how many, which, and that all are chosen as often."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pykaldist.hmm.ivector.reservoir import Reservoir


@given(st.lists(st.integers(0, 9), max_size=12), st.integers(1, 30), st.integers(0, 99))
def test_the_sample_is_of_different_frames(lengths: list[int], size: int, seed: int) -> None:
    total = sum(lengths)
    sample, frames = Reservoir(size, np.random.default_rng(seed)), np.arange(2 * total, dtype=np.float32).reshape(total, 2)
    for end, length in zip(np.cumsum(lengths).tolist(), lengths, strict=True):
        sample.add(frames[end - length:end])
    rows = sample.rows
    assert len(rows) == min(size, total)
    if total:
        numbers = rows[:, 0].astype(int) // 2
        assert len(set(numbers.tolist())) == len(rows)
        np.testing.assert_array_equal(rows, frames[numbers])
    if total <= size:
        np.testing.assert_array_equal(rows.reshape(-1, 2), frames)


def test_each_frame_is_chosen_as_often() -> None:
    rng, chosen = np.random.default_rng(0), np.zeros(20)
    for _ in range(4000):
        sample = Reservoir(5, rng)
        for part in np.split(np.arange(20.0)[:, None], [3, 4, 11]):
            sample.add(part)
        chosen[sample.rows[:, 0].astype(int)] += 1
    deviation = np.sqrt(4000 * 0.25 * 0.75)
    assert np.abs(chosen - 1000).max() < 4 * deviation  # 20 frames: by chance once in 800 seeds
