"""Deltas and splicing against Kaldi's numbers and against loops over frames."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.errors import UserError
from pykaldist.feats.deltas import DeltaOptions, add_deltas
from pykaldist.feats.splice import splice


def test_deltas_equal_kaldi(golden_feats) -> None:
    feats = golden_feats("mfcc13")
    for utt, expected in golden_feats("mfcc39_deltas").items():
        np.testing.assert_allclose(add_deltas(feats[utt]), expected, atol=1e-4)


def test_splicing_equals_kaldi(golden_feats) -> None:
    feats = golden_feats("mfcc13")
    for utt, expected in golden_feats("mfcc13_splice3").items():
        np.testing.assert_array_equal(splice(feats[utt], 3, 3), expected)


def deltas_slowly(x: np.ndarray, order: int, window: int) -> np.ndarray:
    """The definition: filters convolved by hand, frames clamped at the edges."""
    filters = [{0: 1.0}]
    norm = sum(j * j for j in range(-window, window + 1))
    for _ in range(order):
        wider: dict[int, float] = {}
        for i, tap in filters[-1].items():
            for j in range(-window, window + 1):
                wider[i + j] = wider.get(i + j, 0.0) + tap * j / norm
        filters.append(wider)
    rows = []
    for t in range(len(x)):
        rows.append(np.concatenate([
            sum(tap * x[min(max(t + j, 0), len(x) - 1)].astype(np.float64) for j, tap in taps.items()) for taps in filters]))
    return np.array(rows)


@settings(max_examples=40)
@given(st.integers(1, 12), st.integers(0, 3), st.integers(1, 3), st.integers(0, 1000))
def test_deltas_equal_the_definition(frames: int, order: int, window: int, seed: int) -> None:
    x = np.random.default_rng(seed).normal(size=(frames, 3)).astype(np.float32)
    np.testing.assert_allclose(add_deltas(x, order, window), deltas_slowly(x, order, window), atol=1e-5)


@settings(max_examples=40)
@given(st.integers(1, 12), st.integers(0, 5), st.integers(0, 5))
def test_splice_clamps_at_the_edges(frames: int, left: int, right: int) -> None:
    x = np.arange(frames * 2, dtype=np.float32).reshape(frames, 2)
    y = splice(x, left, right)
    for t in range(frames):
        neighbours = [x[min(max(t + j, 0), frames - 1)] for j in range(-left, right + 1)]
        np.testing.assert_array_equal(y[t], np.concatenate(neighbours))


def test_delta_options_out_of_range_are_refused() -> None:
    with pytest.raises(UserError, match="--delta-window"):
        DeltaOptions(delta_window=0)
