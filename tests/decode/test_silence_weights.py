"""Weights of frames for i-vectors beside Kaldi's rule, written out a frame at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykaldist.decode.silence_weights import BACK, FrameWeights, SilenceWeighting
from pykaldist.errors import UserError

TID2PHONE = np.array([0, 1, 1, 2, 2, 3, 3])  # phone 1 is silence
STEP = 3


class Reference:
    """Output frames, each with its transition-id (0: the search has not come there) and the weight that it has had."""

    def __init__(self, weighting: SilenceWeighting) -> None:
        self.weighting, self.tid, self.weight = weighting, list[int](), list[float]()

    def changed(self, path: list[int], ready: int) -> None:
        silence, most = self.weighting.silence_weight, self.weighting.max_state_duration
        begin, outputs = max(0, len(self.weight) - BACK), -(-ready // STEP)
        self.tid = path + [0] * (outputs - len(path))
        new = self.weight + [0.0] * (outputs - len(self.weight))
        for frame in range(begin, outputs):
            if self.tid[begin] == 0:
                new[frame] = silence if begin == 0 else new[begin - 1]
            elif self.tid[frame] == 0:
                new[frame] = new[frame - 1]
            else:
                first, last = frame, frame
                while first > begin and self.tid[first - 1] == self.tid[frame]:
                    first -= 1
                while last + 1 < outputs and self.tid[last + 1] == self.tid[frame]:
                    last += 1
                long = most > 0 and last - first + 1 >= most
                new[frame] = silence if long or TID2PHONE[self.tid[frame]] == 1 else 1.0
        self.weight = new


@given(st.lists(st.tuples(st.integers(0, 90), st.integers(0, 400)), min_size=1, max_size=8), st.sampled_from([-1.0, 2.0, 5.0]),
       st.integers(0, 2**31))
def test_weights_are_those_of_the_rule(steps: list[tuple[int, int]], most: float, seed: int) -> None:
    """While frames come, and the best path changes from one call to the next; a frame's changes come to its weight."""
    rng = np.random.default_rng(seed)
    weighting = SilenceWeighting([1], 0.25, most)
    found, reference, total, ready = FrameWeights(weighting, TID2PHONE, STEP), Reference(weighting), np.zeros(5000), 0
    for more, decoded in steps:
        ready += more
        path = np.repeat(rng.integers(1, 7, 200), rng.integers(1, 6, 200))[: min(decoded, ready // STEP)]
        reference.changed(path.tolist(), ready)
        found.heard(path)
        frames, change = found.changes(ready)
        assert (frames < ready).all() and (np.diff(frames) > 0).all()
        total[frames] += change
        np.testing.assert_allclose(total[:ready], np.repeat(reference.weight, STEP)[:ready])


def test_the_next_utterance_begins_with_what_has_counted() -> None:
    """Frames behind an utterance's end have counted in it: the next one changes them, and does not count them again."""
    weighting = SilenceWeighting([1], 0.5)
    first = FrameWeights(weighting, TID2PHONE, STEP)
    first.heard(np.full(10, 3))
    assert first.changes(45)[1].tolist() == [1.0] * 45
    following = FrameWeights(weighting, TID2PHONE, STEP, 30, first)
    frames, change = following.changes(48)  # of which nothing is known: silence
    assert frames.tolist() == list(range(30, 48)) and change.tolist() == [-0.5] * 15 + [0.5] * 3


def test_a_weight_that_is_no_share_is_refused() -> None:
    with pytest.raises(UserError, match=r"silence-weight 1\.5: expected a number from 0 to 1"):
        SilenceWeighting([1], 1.5)
