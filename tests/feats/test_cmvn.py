"""CMVN against Kaldi's numbers and against a loop over frames."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.errors import UserError
from pykaldist.feats.cmvn import CmvnOptions, apply_cmvn, cmvn_stats, sliding_cmvn


def test_statistics_equal_kaldi(golden_feats) -> None:
    feats = golden_feats("mfcc13")
    for utt, expected in golden_feats("cmvn_stats").items():
        stats = cmvn_stats([feats[utt]])
        assert stats.dtype == np.float64
        np.testing.assert_allclose(stats, expected, rtol=1e-6, atol=1e-3)


def test_normalised_features_equal_kaldi(golden_feats) -> None:
    feats = golden_feats("mfcc13")
    for utt, expected in golden_feats("mfcc13_cmvn").items():
        y = apply_cmvn(feats[utt], cmvn_stats([feats[utt]]), norm_vars=True)
        assert y.dtype == np.float32
        np.testing.assert_allclose(y, expected, atol=1e-4)


def test_statistics_of_parts_add_up() -> None:
    x = np.random.default_rng(1).normal(3, 2, (50, 4)).astype(np.float32)
    np.testing.assert_allclose(cmvn_stats([x[:20], x[20:]]), cmvn_stats([x]), rtol=1e-12)
    np.testing.assert_allclose(cmvn_stats([x]) - cmvn_stats([x[:20]]), cmvn_stats([x[20:]]), rtol=1e-9, atol=1e-9)


def test_mean_only_keeps_the_variance() -> None:
    x = np.random.default_rng(2).normal(3, 2, (50, 4)).astype(np.float32)
    y = apply_cmvn(x, cmvn_stats([x]))
    np.testing.assert_allclose(y.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(y.std(axis=0), x.std(axis=0), rtol=1e-5)


def sliding_slowly(x: np.ndarray, window: int, min_window: int, center: bool, norm_vars: bool) -> np.ndarray:
    """Kaldi's SlidingWindowCmnInternal, frame by frame."""
    total = len(x)
    y = np.zeros_like(x, dtype=np.float64)
    for t in range(total):
        start, end = (t - window // 2, t - window // 2 + window) if center else (t - window, t + 1)
        if start < 0:
            end -= start
            start = 0
        if not center and end > t:
            end = max(t + 1, min_window)
        if end > total:
            start -= end - total
            end = total
            start = max(start, 0)
        frames = x[start:end].astype(np.float64)
        y[t] = x[t] - frames.mean(axis=0)
        if norm_vars:
            y[t] = 0 if end - start == 1 else y[t] / np.sqrt(np.maximum(frames.var(axis=0), 1e-10))
    return y


@settings(max_examples=60)
@given(st.integers(1, 60), st.integers(1, 40), st.integers(1, 30), st.booleans(), st.booleans(), st.integers(0, 1000))
def test_sliding_equals_a_loop(total: int, window: int, min_window: int, center: bool, norm_vars: bool, seed: int) -> None:
    x = np.random.default_rng(seed).normal(5, 3, (total, 3)).astype(np.float32)
    expected = sliding_slowly(x, window, min_window, center, norm_vars)
    np.testing.assert_allclose(sliding_cmvn(x, window, min_window, center, norm_vars), expected, rtol=1e-3, atol=1e-3)


def test_errors_say_what_does_not_fit() -> None:
    x = np.ones((3, 4), dtype=np.float32)
    with pytest.raises(UserError, match=r"expected \(2, 5\)"):
        apply_cmvn(x, np.ones((2, 4)))
    with pytest.raises(UserError, match="count 0 frames"):
        apply_cmvn(x, np.zeros((2, 5)))
    with pytest.raises(UserError, match="CMVN statistics are not finite; run"):
        apply_cmvn(x, np.array([[1, 2, np.inf, 3, 9], [1, 2, 3, 4, 0]]))
    with pytest.raises(UserError, match="4 dimensions after 3"):
        cmvn_stats([x[:, :3], x])
    with pytest.raises(UserError, match="no features"):
        cmvn_stats([])


@pytest.mark.parametrize("options", [
    {"norm_vars": True, "norm_means": False}, {"center": True}, {"sliding": True, "cmn_window": 0}])
def test_options_that_contradict_each_other_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(UserError):
        CmvnOptions(**options)
