"""i-vectors of features that still come are those of what was heard so far of the whole utterance."""

from __future__ import annotations

import numpy as np
import pytest

from pykaldist.feats.cmvn import OnlineCmvnOptions
from pykaldist.feats.splice import SpliceOptions
from pykaldist.hmm.gmm.gmm import AmDiagGmm
from pykaldist.hmm.ivector.extractor import IvectorExtractor
from pykaldist.hmm.ivector.features import IvectorFeatures
from pykaldist.hmm.ivector.online import OnlineExtractor, OnlineOptions
from pykaldist.hmm.ivector.stream import IvectorStream

DIM, SPLICED, WINDOW = 5, 6, 50


def extractor(max_count: float) -> OnlineExtractor:
    """An extractor whose CMVN forgets, with one i-vector for each frame."""
    rng = np.random.default_rng(1)
    inv_vars = rng.uniform(0.5, 2, (8, SPLICED))
    ubm = AmDiagGmm(np.array([0, 8]), np.full(8, 1 / 8), inv_vars * rng.normal(size=(8, SPLICED)), inv_vars)
    stats = np.zeros((2, DIM + 1))
    stats[0, -1] = 100
    stats[1, :-1] = 100
    features = IvectorFeatures(OnlineCmvnOptions(WINDOW, 30, 20), stats, SpliceOptions(3, 2), rng.normal(size=(SPLICED, 6 * DIM)) / 5)
    return OnlineExtractor(features, ubm, IvectorExtractor.initial(ubm, 4, rng), OnlineOptions(1, max_count))


@pytest.mark.parametrize("max_count", [0.0, 10.0])
def test_i_vectors_and_what_is_remembered_are_those_of_the_whole(max_count: float) -> None:
    extract = extractor(max_count)
    whole, parts = extract.new_speaker(), extract.new_speaker()
    for frames in (130, 210):
        x = np.random.default_rng(frames).normal(size=(frames, DIM)).astype(np.float32) + 1
        expected = extract(x, whole)
        stream, begin = IvectorStream(extract, parts), 0
        for end in (1, 2, 3, 4, 20, 21, 90, frames):
            found = stream.accept(x[begin:end])
            begin, heard = end, end - 2  # the splicing takes two frames ahead
            np.testing.assert_allclose(found[0], expected[heard - 1] if heard > 0 else np.zeros(4), atol=1e-3)
        stream.finish()
        np.testing.assert_allclose(parts.stats.quadratic, whole.stats.quadratic, rtol=1e-5)
        np.testing.assert_allclose(parts.stats.linear, whole.stats.linear, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(parts.cmvn, whole.cmvn)


def test_weights_that_change_later_are_those_of_the_end() -> None:
    """Frames count as they were weighed last."""
    extract, frames = extractor(10.0), 120
    extract.posteriors.min_post = 0.0  # a change of weight has as many Gaussians as the weight itself
    whole, parts = extract.new_speaker(), extract.new_speaker()
    rng = np.random.default_rng(3)
    x = rng.normal(size=(frames, DIM)).astype(np.float32) + 1
    weights, counted, before = np.zeros(frames), np.zeros(frames), [0]

    def changes(ready: int) -> tuple[np.ndarray, np.ndarray]:
        first, before[0] = max(0, before[0] - 30), ready  # all that is remembered may change
        weights[first:ready] = rng.choice([0.0, 0.1, 1.0], ready - first)
        at = np.flatnonzero(weights != counted)
        change = weights[at] - counted[at]
        counted[at] = weights[at]
        return at, change

    stream = IvectorStream(extract, parts, remembered=30)
    for begin in range(0, frames, 10):
        stream.accept(x[begin : begin + 10], changes)
    found = stream.finish(changes)
    expected = extract(x, whole, frame_weights=weights)
    np.testing.assert_allclose(parts.stats.quadratic, whole.stats.quadratic, rtol=1e-4)
    np.testing.assert_allclose(found[0], expected[-1], atol=1e-3)


def test_memory_is_bounded_by_the_window() -> None:
    extract = extractor(0.0)
    stream = IvectorStream(extract, extract.new_speaker())
    for _ in range(40):
        stream.accept(np.zeros((10, DIM), np.float32))
    assert stream._tail is not None and len(stream._tail) <= WINDOW + 3 + 2
    assert stream.accept(np.zeros((0, DIM), np.float32)).shape == (1, 4)
