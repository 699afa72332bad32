"""Mixtures: likelihoods against a slow reference, EM that raises the likelihood, splitting, removal, boosting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.errors import UserError
from pykaldist.hmm.gmm.gmm import AmDiagGmm, split_targets


def random_gmm(rng: np.random.Generator, sizes: list[int], dim: int = 5) -> AmDiagGmm:
    count = sum(sizes)
    weights = np.concatenate([rng.dirichlet(np.ones(n)) for n in sizes])
    inv_vars = rng.uniform(0.3, 3, (count, dim))
    return AmDiagGmm(np.concatenate([[0], np.cumsum(sizes)]), weights, rng.standard_normal((count, dim)) * inv_vars, inv_vars)


def slow_loglikes(gmm: AmDiagGmm, feats: np.ndarray) -> np.ndarray:
    """float64, straight from the definition of the normal density."""
    result = np.empty((len(feats), gmm.num_pdfs))
    for pdf in range(gmm.num_pdfs):
        scores = []
        for g in range(gmm.offsets[pdf], gmm.offsets[pdf + 1]):
            variance = 1 / gmm.inv_vars[g].astype(np.float64)
            mean = gmm.means_invvars[g] * variance
            density = -0.5 * (np.log(2 * np.pi * variance) + (feats.astype(np.float64) - mean) ** 2 / variance).sum(axis=1)
            scores.append(np.log(np.float64(gmm.weights[g])) + density)
        result[:, pdf] = np.logaddexp.reduce(scores, axis=0)
    return result


def test_loglikes_against_slow_reference() -> None:
    rng = np.random.default_rng(0)
    gmm = random_gmm(rng, [3, 1, 7, 2])
    feats = (rng.standard_normal((40, 5)) * 4).astype(np.float32)
    expected = slow_loglikes(gmm, feats)
    np.testing.assert_allclose(gmm.loglikes(feats), expected, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(gmm.loglikes(feats, np.array([3, 0])), expected[:, [3, 0]], rtol=1e-5, atol=1e-4)
    assert gmm.loglikes(feats).dtype == np.float32


def test_far_frames_stay_finite() -> None:
    gmm = random_gmm(np.random.default_rng(0), [4, 2])
    assert np.isfinite(gmm.loglikes(np.full((2, 5), 1e3, dtype=np.float32))).all()


def test_wrong_dimension() -> None:
    with pytest.raises(UserError, match="dimension 5, found 4"):
        random_gmm(np.random.default_rng(0), [1]).loglikes(np.zeros((2, 4), np.float32))


def test_accumulation_against_slow_reference() -> None:
    rng = np.random.default_rng(1)
    gmm = random_gmm(rng, [2, 3])
    feats = rng.standard_normal((5000, 5)).astype(np.float32)  # more than one block
    stats = gmm.new_stats()
    log_likelihood = gmm.accumulate(stats, 1, feats)
    scores = np.stack([slow_loglikes(AmDiagGmm([0, 1], gmm.weights[g:g + 1], gmm.means_invvars[g:g + 1], gmm.inv_vars[g:g + 1]),
                                     feats)[:, 0] for g in range(2, 5)], axis=1)
    total = np.logaddexp.reduce(scores, axis=1)
    posteriors = np.exp(scores - total[:, None])
    assert log_likelihood == pytest.approx(total.sum(), rel=1e-6)
    np.testing.assert_allclose(stats.occupancy, [0, 0, *posteriors.sum(axis=0)], rtol=1e-5)
    np.testing.assert_allclose(stats.x[2:], posteriors.T @ feats, rtol=1e-3, atol=1e-2)
    np.testing.assert_allclose(stats.x2[2:], posteriors.T @ feats.astype(np.float64) ** 2, rtol=1e-4)


@settings(max_examples=20)
@given(st.integers(0, 10**6))
def test_em_raises_the_likelihood(seed: int) -> None:
    rng = np.random.default_rng(seed)
    gmm = random_gmm(rng, [3])
    feats = (random_centres(rng, 3)[rng.integers(0, 3, 400)] + rng.standard_normal((400, 5))).astype(np.float32)
    before = -np.inf
    for _ in range(4):
        stats = gmm.new_stats()
        now = gmm.accumulate(stats, 0, feats)
        assert now >= before - 1e-3
        gmm, before = gmm.updated(stats, min_gaussian_occupancy=0, min_gaussian_weight=0), now


def random_centres(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.standard_normal((count, 5)) * 3


def test_update_of_one_gaussian_is_mean_and_variance() -> None:
    rng = np.random.default_rng(2)
    feats = rng.standard_normal((500, 5)).astype(np.float32) * [1, 2, 3, 0.001, 0] + [1, 2, 3, 4, 5]
    gmm = AmDiagGmm.flat_start(2, np.zeros(5), np.ones(5))
    stats = gmm.new_stats()
    gmm.accumulate(stats, 1, feats.astype(np.float32))
    new = gmm.updated(stats)
    np.testing.assert_allclose(new.means_invvars[1] / new.inv_vars[1], feats.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(1 / new.inv_vars[1, :3], feats.var(axis=0)[:3], rtol=1e-4)
    np.testing.assert_allclose(1 / new.inv_vars[1, 3:], 0.001, rtol=1e-6)  # floored
    np.testing.assert_array_equal(new.means_invvars[0], gmm.means_invvars[0])  # pdf 0 saw nothing and stays


def test_starved_gaussians_are_removed() -> None:
    gmm = random_gmm(np.random.default_rng(3), [3, 2])
    stats = gmm.new_stats()
    stats.occupancy[:] = [100, 5, 50, 2, 1]
    stats.x2[:] = 1000
    new = gmm.updated(stats, min_gaussian_occupancy=10)
    assert new.offsets.tolist() == [0, 2, 3]
    np.testing.assert_allclose(new.weights, [100 / 150, 50 / 150, 1], rtol=1e-6)
    np.testing.assert_array_equal(new.means_invvars[2], gmm.means_invvars[4])  # the last of a starved pdf is kept


def test_split() -> None:
    rng = np.random.default_rng(4)
    gmm = random_gmm(rng, [2, 1])
    new = gmm.split(np.array([5, 1]), rng)
    assert new.offsets.tolist() == [0, 5, 6]
    weights = gmm.weights[:2].tolist()
    while len(weights) < 5:  # the heaviest is halved
        heaviest = weights.index(max(weights))
        weights[heaviest] /= 2
        weights.append(weights[heaviest])
    np.testing.assert_array_equal(new.weights[:5], weights)
    # the halves move apart by the same distance, so the mean of the pdf stays
    np.testing.assert_allclose(pdf_mean(new, 0), pdf_mean(gmm, 0), rtol=1e-4, atol=1e-4)
    origin = [int(np.abs(gmm.inv_vars[:2] - row).sum(axis=1).argmin()) for row in new.inv_vars[:5]]
    moved = np.abs(new.means_invvars[:5] - gmm.means_invvars[origin]) / np.sqrt(new.inv_vars[:5])
    assert 0.001 < moved.max() < 0.15  # some splits of 0.01 standard deviations
    np.testing.assert_array_equal(new.means_invvars[5], gmm.means_invvars[2])


def pdf_mean(gmm: AmDiagGmm, pdf: int) -> np.ndarray:
    part = slice(gmm.offsets[pdf], gmm.offsets[pdf + 1])
    return (gmm.weights[part, None] * gmm.means_invvars[part] / gmm.inv_vars[part]).sum(axis=0)


@given(st.lists(st.floats(0, 1e5), min_size=1, max_size=12), st.integers(1, 200), st.sampled_from([0.2, 0.25, 1.0]))
def test_split_targets_against_slow_reference(occupancy: list[float], num_gauss: int, power: float) -> None:
    occupancies = np.array(occupancy)
    targets, closed = np.ones(len(occupancy), dtype=int), np.zeros(len(occupancy), dtype=bool)
    while targets.sum() < num_gauss and not closed.all():
        need = np.where(closed, -1.0, occupancies**power / targets)
        best = int(need.argmax())
        if (targets[best] + 1) * 20.0 >= occupancies[best]:
            closed[best] = True
        else:
            targets[best] += 1
    assert split_targets(occupancies, num_gauss, power).tolist() == targets.tolist()


def test_boost() -> None:
    rng = np.random.default_rng(5)
    gmm = random_gmm(rng, [2, 3])
    feats = rng.standard_normal((4, 5)).astype(np.float32)
    change = gmm.boosted(np.array([1]), 1.25).loglikes(feats) - gmm.loglikes(feats)
    np.testing.assert_allclose(change, np.tile([0, np.log(1.25)], (4, 1)), atol=1e-5)


@settings(max_examples=20)
@given(st.integers(0, 1000), st.lists(st.integers(1, 6), min_size=1, max_size=3), st.integers(1, 4))
def test_merging_keeps_weight_mean_and_second_moment(seed: int, sizes: list[int], target: int) -> None:
    gmm = random_gmm(np.random.default_rng(seed), sizes)
    made = gmm.merged(np.full(len(sizes), target))
    assert np.diff(made.offsets).tolist() == [min(size, target) for size in sizes]
    for pdf in range(len(sizes)):
        moments = []
        for model in (gmm, made):
            part = slice(model.offsets[pdf], model.offsets[pdf + 1])
            weight, variance = model.weights[part].astype(float)[:, None], 1 / model.inv_vars[part].astype(float)
            mean = model.means_invvars[part] * variance
            moments.append(np.stack([(weight * mean).sum(0), (weight * (variance + mean**2)).sum(0), np.full(5, weight.sum())]))
        np.testing.assert_allclose(*moments, rtol=1e-4, atol=1e-5)


def test_the_two_gaussians_that_are_alike_are_merged() -> None:
    means = np.array([[0, 0], [5, 5], [0.2, 0], [9, 0]], float)
    gmm = AmDiagGmm([0, 4], np.full(4, 0.25), means, np.ones((4, 2)))
    made = gmm.merged(np.array([3]))
    np.testing.assert_allclose(made.weights, [0.5, 0.25, 0.25])
    np.testing.assert_allclose(made.means_invvars / made.inv_vars, [[0.1, 0], [5, 5], [9, 0]], atol=1e-6)
    np.testing.assert_allclose(1 / made.inv_vars[0], [1.01, 1], rtol=1e-5)


def test_mixtures_are_taken_from_pdfs() -> None:
    gmm = random_gmm(np.random.default_rng(3), [2, 1, 3])
    feats = np.random.default_rng(4).standard_normal((6, 5)).astype(np.float32)
    taken, gaussians = gmm.taken(np.array([2, 0, 2])), [3, 4, 5, 0, 1, 3, 4, 5]
    for name in ("weights", "means_invvars", "inv_vars", "gconsts"):
        np.testing.assert_array_equal(getattr(taken, name), getattr(gmm, name)[gaussians])
    # Products of other shapes may be rounded in other ways.
    np.testing.assert_allclose(taken.loglikes(feats), gmm.loglikes(feats)[:, [2, 0, 2]], rtol=1e-6)
