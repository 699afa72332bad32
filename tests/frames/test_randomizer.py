"""Shuffled minibatches of a stream: every frame once, in minibatches of one size, rows of all fields together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykaldist.errors import UserError
from pykaldist.frames.randomizer import minibatches


def stream(lengths: list[int]) -> list[dict[str, np.ndarray]]:
    """Utterances whose frames are numbered through; soft targets are as wide as the number of the utterance."""
    numbers = np.split(np.arange(sum(lengths)), np.cumsum(lengths)[:-1])
    return [{"inputs": n[:, None].astype(np.float32), "targets": n.astype(np.int32),
             "posterior_pdfs": np.repeat(n[:, None], width, 1).astype(np.int32)} for width, n in enumerate(numbers, 1)]


@given(lengths=st.lists(st.integers(1, 40), min_size=1, max_size=8), size=st.integers(1, 16), more=st.integers(0, 60),
       shuffle=st.booleans())
def test_every_frame_once(lengths: list[int], size: int, more: int, shuffle: bool) -> None:
    def order(seed: int) -> list[int]:
        seen, sizes = [], []
        for index, minibatch in enumerate(minibatches(stream(lengths), size, size + more, np.random.default_rng(seed), shuffle)):
            assert minibatch.index == index and minibatch.posterior_pdfs is not None
            assert (minibatch.inputs[:, 0] == minibatch.targets).all() and (minibatch.posterior_pdfs[:, 0] == minibatch.targets).all()
            seen += minibatch.targets.tolist()
            sizes.append(len(minibatch))
        assert set(sizes[:-1]) <= {size} and 0 < sizes[-1] <= size
        return seen

    found = order(1)
    assert sorted(found) == list(range(sum(lengths))) and order(1) == found
    if not shuffle:
        assert found == sorted(found)


def test_frames_of_a_buffer_are_mixed() -> None:
    """Of 100 utterances of ten frames in a buffer of 500, minibatches of 50 hold frames of many."""
    found = list(minibatches(stream([10] * 100), 50, 500, np.random.default_rng(0)))
    assert len(found) == 20 and min(len(set((m.targets // 10).tolist())) for m in found) > 20
    assert all((m.targets < 500).all() for m in found[:10])  # nothing comes before the buffer is full


def test_a_buffer_smaller_than_a_minibatch() -> None:
    with pytest.raises(UserError, match="--minibatch-size=10 --randomizer-size=9"):
        next(minibatches(stream([3]), 10, 9, np.random.default_rng(0)))
