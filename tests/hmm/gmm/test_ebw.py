"""Extended Baum-Welch: a slow reference, the auxiliary function, and what has to stay as it is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.errors import UserError
from pykaldist.hmm.gmm import ebw as module
from pykaldist.hmm.gmm.ebw import EbwOptions, model_stats, smoothed, update, update_gaussians, update_weights
from pykaldist.hmm.gmm.gmm import AmDiagGmm, GmmStats

from .test_gmm import random_gmm


def random_stats(gmm: AmDiagGmm, rng: np.random.Generator, frames: float) -> GmmStats:
    """Of Gaussians near the model's, which have 0 to `frames` frames each."""
    model, n = model_stats(gmm), rng.uniform(0, frames, gmm.num_gauss)
    variance = (model.x2 - model.x**2) * rng.uniform(0.3, 2, model.x.shape)
    mean = model.x + rng.normal(scale=0.7, size=model.x.shape)
    return GmmStats(n, n[:, None] * mean, n[:, None] * (variance + mean * mean))


def auxiliary(gmm: AmDiagGmm, old: AmDiagGmm, num: GmmStats, den: GmmStats, d: np.ndarray) -> np.ndarray:
    """Q of each Gaussian, in float64, straight from its definition."""
    variance = 1.0 / gmm.inv_vars.astype(np.float64)
    mean, model = gmm.means_invvars * variance, model_stats(old)
    n = (num.occupancy - den.occupancy + d)[:, None]
    x, x2 = num.x - den.x + d[:, None] * model.x, num.x2 - den.x2 + d[:, None] * model.x2
    return -0.5 * (n * np.log(variance) + (x2 - 2 * mean * x + n * mean * mean) / variance).sum(1)


def slow_update(gmm: AmDiagGmm, num: GmmStats, den: GmmStats, tau: float, e: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means, variances and D of each Gaussian, one after another."""
    model, means, variances, ds = model_stats(gmm), [], [], []
    for g in range(gmm.num_gauss):
        n, x, x2 = num.occupancy[g] - den.occupancy[g], num.x[g] - den.x[g], num.x2[g] - den.x2[g]
        half = (tau + e * den.occupancy[g]) / 2
        if half + n <= 0:
            half = -1.0001 * n + 1e-10
        while True:
            mean = (x + half * model.x[g]) / (n + half)
            if ((x2 + half * model.x2[g]) / (n + half) - mean**2 > 0).all():
                break
            half *= 1.1
        d = 2 * half
        mean = (x + d * model.x[g]) / (n + d)
        means.append(mean)
        variances.append((x2 + d * model.x2[g]) / (n + d) - mean**2)
        ds.append(d)
    return np.array(means), np.array(variances), np.array(ds)


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 1.0, 50.0]), st.sampled_from([1.0, 2.0]), st.floats(1, 200))
def test_gaussians_against_a_slow_reference(seed: int, tau: float, e: float, frames: float) -> None:
    """And the auxiliary function rises by what the update says, so does not fall; nothing near is higher."""
    rng = np.random.default_rng(seed)
    gmm = random_gmm(rng, [3, 1, 2], dim=3)
    num, den = random_stats(gmm, rng, frames), random_stats(gmm, rng, frames)
    made = update_gaussians(gmm, num, den, tau, e)
    mean, variance, d = slow_update(gmm, num, den, tau, e)
    np.testing.assert_allclose(1 / made.gmm.inv_vars, variance, rtol=1e-4)
    np.testing.assert_allclose(made.gmm.means_invvars / made.gmm.inv_vars, mean, rtol=1e-3, atol=1e-3)
    before, after = auxiliary(gmm, gmm, num, den, d), auxiliary(made.gmm, gmm, num, den, d)
    assert made.gain >= 0
    assert made.gain == pytest.approx((after - before).sum(), rel=1e-3, abs=1e-2)
    near = AmDiagGmm(gmm.offsets, gmm.weights, made.gmm.means_invvars * rng.uniform(0.99, 1.01, mean.shape),
                     made.gmm.inv_vars * rng.uniform(0.99, 1.01, mean.shape))
    assert (auxiliary(near, gmm, num, den, d) <= after + 1e-3 * (1 + abs(after))).all()


def test_what_leaves_gaussians_as_they_are() -> None:
    """Equal numerator and denominator; no statistics; endless smoothing."""
    rng = np.random.default_rng(0)
    gmm = random_gmm(rng, [2, 2], dim=3)
    stats, none = random_stats(gmm, rng, 50), gmm.new_stats()
    for num, den, tau in ((stats, stats, 0.0), (none, none, 0.0), (random_stats(gmm, rng, 50), stats, 1e9)):
        made = update_gaussians(gmm, num, den, tau)
        np.testing.assert_allclose(made.gmm.inv_vars, gmm.inv_vars, rtol=1e-5)
        np.testing.assert_allclose(made.gmm.means_invvars, gmm.means_invvars, rtol=1e-4, atol=1e-5)


def test_without_denominator_and_smoothing_it_is_maximum_likelihood() -> None:
    rng = np.random.default_rng(1)
    gmm = random_gmm(rng, [2, 2], dim=3)
    num = random_stats(gmm, rng, 90)
    num.occupancy, num.x, num.x2 = num.occupancy + 20, num.x + 20 * model_stats(gmm).x, num.x2 + 20 * model_stats(gmm).x2
    made, expected = update_gaussians(gmm, num, gmm.new_stats(), 0.0).gmm, gmm.updated(num)
    np.testing.assert_allclose(made.means_invvars, expected.means_invvars, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(made.inv_vars, expected.inv_vars, rtol=1e-4)


def test_smoothing_towards_statistics() -> None:
    """tau frames of their means; a Gaussian without any gets none. Towards the model it is what D does."""
    rng = np.random.default_rng(2)
    gmm = random_gmm(rng, [2, 1], dim=3)
    stats, other = random_stats(gmm, rng, 50), random_stats(gmm, rng, 50)
    other.occupancy[1] = 0.0
    made = smoothed(stats, other, 7.0)
    np.testing.assert_allclose(made.occupancy - stats.occupancy, [7, 0, 7])
    np.testing.assert_allclose((made.x - stats.x)[0], 7 * other.x[0] / other.occupancy[0])
    num, den = random_stats(gmm, rng, 20), random_stats(gmm, rng, 20)
    one = update_gaussians(gmm, smoothed(num, model_stats(gmm), 400.0), den, 0.0).gmm
    two = update_gaussians(gmm, num, den, 400.0).gmm
    np.testing.assert_allclose(one.means_invvars, two.means_invvars, rtol=1e-3, atol=1e-3)


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 10.0]))
def test_weights_raise_their_auxiliary_function(seed: int, tau: float) -> None:
    rng = np.random.default_rng(seed)
    gmm = random_gmm(rng, [3, 1, 4], dim=2)
    num, den = rng.uniform(0, 60, (2, 8))
    made = update_weights(gmm, num, den, tau)
    old, new = gmm.weights.astype(float), made.gmm.weights.astype(float)
    for first, end in ((0, 3), (3, 4), (4, 8)):
        assert new[first:end].sum() == pytest.approx(1, abs=1e-5)
        mine = slice(first, end)
        counts = num[mine] + tau * old[mine]

        def of(weights: np.ndarray, mine: slice = mine, counts: np.ndarray = counts) -> float:
            return float((counts * np.log(weights) - den[mine] * weights / old[mine]).sum())

        assert of(new[mine]) >= of(old[mine]) - 1e-3
    assert made.gain >= -1e-6


def test_weights_come_to_the_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    """There n_num / w - n_den / w_0 is alike for all; Kaldi's fifty sweeps go a part of the way, always upwards."""
    rng = np.random.default_rng(9)
    gmm = random_gmm(rng, [3], dim=2)
    num, den = rng.uniform(10, 60, (2, 3))
    gains = []
    for sweeps in (5, 50, 500, 20000):
        monkeypatch.setattr(module, "_WEIGHT_SWEEPS", sweeps)
        made = update_weights(gmm, num, den, 0.0)
        gains.append(made.gain)
    assert gains == sorted(gains) and gains[0] > 0
    slopes = num / made.gmm.weights - den / gmm.weights
    np.testing.assert_allclose(slopes, slopes[0], rtol=1e-2)


def test_few_frames_keep_the_weights() -> None:
    gmm = random_gmm(np.random.default_rng(3), [3], dim=2)
    few = np.array([2.0, 1.0, 0.0])
    np.testing.assert_array_equal(update_weights(gmm, few, few, 0.0).gmm.weights, gmm.weights)
    assert abs(update_weights(gmm, 10 * few, few, 0.0).gmm.weights - gmm.weights).max() > 0.01


def test_options_are_checked() -> None:
    with pytest.raises(UserError, match="--weight-tau must not be negative, found -1"):
        EbwOptions(weight_tau=-1)
    gmm = random_gmm(np.random.default_rng(4), [2], dim=2)
    stats = random_stats(gmm, np.random.default_rng(5), 30)
    assert update(gmm, stats, stats, EbwOptions(), model_stats(gmm)).gmm.num_gauss == 2
