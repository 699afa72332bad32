"""Posteriors of the UBM beside a frame by frame pruning, written as Kaldi's text says it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.errors import UserError
from pykaldist.hmm.gmm.gmm import AmDiagGmm
from pykaldist.hmm.ivector.posteriors import PosteriorOptions, frame_posteriors


def slow(scores: np.ndarray, count: int, min_post: float) -> dict[int, float]:
    """The posteriors of one frame."""
    likely = [g for g in range(len(scores)) if scores[g] > scores.max() + math.log(min_post)] if min_post > 0 else list(range(len(scores)))
    best = sorted(likely, key=lambda g: -scores[g])[:count]
    values = [math.exp(scores[g] - scores.max()) for g in best]
    cutoff = min_post * sum(values)
    while len(values) > 1 and values[-1] < cutoff:
        values.pop()
    return {g: value / sum(values) for g, value in zip(best, values, strict=False)}


@settings(max_examples=30)
@given(count=st.integers(1, 9), min_post=st.sampled_from([0.0, 0.01, 0.1, 0.4]), spread=st.floats(0.1, 5), seed=st.integers(0, 99))
def test_they_are_those_of_one_frame_after_the_other(count: int, min_post: float, spread: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    inv_vars = rng.uniform(0.5, 2, (7, 2))
    ubm = AmDiagGmm(np.array([0, 7]), rng.dirichlet(np.ones(7)), rng.normal(0, spread, (7, 2)) * inv_vars, inv_vars)
    feats = rng.normal(0, spread, (40, 2)).astype(np.float32)
    found = frame_posteriors(ubm, feats, PosteriorOptions(count, min_post, 0.5))
    assert found.gauss.shape == found.weight.shape == (40, min(count, 7))
    scores = ubm.scores(feats)
    for t in range(40):
        kept = found.weight[t] > 1e-30
        expected = {g: value for g, value in slow(scores[t], count, min_post).items() if 0.5 * value > 1e-30}
        assert dict(zip(found.gauss[t][kept].tolist(), found.weight[t][kept].tolist(), strict=True)) == pytest.approx(
            {g: 0.5 * value for g, value in expected.items()}, abs=1e-6)


def test_a_frames_weight_scales_and_prunes(ubm: AmDiagGmm) -> None:
    feats = np.random.default_rng(5).normal(0, 2, (30, ubm.dim)).astype(np.float32)
    weights = np.tile([1.0, 0.0, 0.2], 10)
    found, scores = frame_posteriors(ubm, feats, PosteriorOptions(4, 0.05, 0.1), weights), ubm.scores(feats)
    for t, weight in enumerate(weights):
        expected = slow(scores[t], 4, 0.05 / weight) if weight else {}
        kept = found.weight[t] > 0
        assert dict(zip(found.gauss[t][kept].tolist(), found.weight[t][kept].tolist(), strict=True)) == pytest.approx(
            {g: 0.1 * weight * value for g, value in expected.items()}, abs=1e-6)


@pytest.mark.parametrize(("options", "said"), [((0, 0.1, 0.1), "--num-gselect"), ((5, 0.5, 0.1), "--min-post"),
                                               ((5, 0.1, 1.5), "--posterior-scale")])
def test_options_out_of_bounds_are_named(options: tuple[int, float, float], said: str) -> None:
    with pytest.raises(UserError, match=said):
        PosteriorOptions(*options)
