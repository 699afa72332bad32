"""Mixtures with full covariances: scores, the selection of Gaussians, EM, and the file."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from pykaldist.errors import UserError
from pykaldist.hmm.sgmm.full_gmm import FullGmm, FullStats, GaussianSelector, Pairs, read_full_ubm, updated, write_full_ubm
from pykaldist.io.kaldi import KaldiReader, KaldiWriter

from .conftest import random_ubm


def log_densities(ubm: FullGmm, x: np.ndarray) -> np.ndarray:
    """log w N(x) of every Gaussian, one at a time."""
    return np.array([np.log(w) + 0.5 * np.linalg.slogdet(p)[1] - 0.5 * (x - m) @ p @ (x - m) - 0.5 * len(x) * np.log(2 * np.pi)
                     for w, m, p in zip(ubm.weights.astype(float), ubm.means, ubm.inv_covars.astype(float), strict=True)])


def test_selection() -> None:
    """With as many candidates as Gaussians the selected ones are the best, from best to worst, with their densities."""
    rng = np.random.default_rng(0)
    ubm, feats = random_ubm(rng, 8), (2 * rng.normal(size=(50, 3))).astype(np.float32)
    selected, scores = GaussianSelector(ubm, ubm.diagonal(), 3, 8).select(feats)
    for x, mine, own in zip(feats.astype(float), selected, scores, strict=True):
        slow = log_densities(ubm, x)
        np.testing.assert_array_equal(mine, np.argsort(-slow)[:3])
        np.testing.assert_allclose(own, slow[mine], atol=1e-4)


def test_candidates_have_the_best_diagonal_scores() -> None:
    rng = np.random.default_rng(1)
    ubm, feats = random_ubm(rng, 8), (2 * rng.normal(size=(50, 3))).astype(np.float32)
    diagonal = ubm.diagonal()
    np.testing.assert_allclose(diagonal.inv_vars, 1 / np.diagonal(np.linalg.inv(ubm.inv_covars), axis1=1, axis2=2), rtol=1e-4)
    found = GaussianSelector(ubm, diagonal, 2, 4).candidates(feats)
    best = np.argsort(-diagonal.scores(feats), axis=1)[:, :4]
    np.testing.assert_array_equal(np.sort(found, axis=1), np.sort(best, axis=1))


def test_pairs() -> None:
    selected = np.array([[2, 0], [0, 1], [2, 1]], np.int16)
    pairs = Pairs.of(selected, 4)
    assert pairs.bounds.tolist() == [0, 2, 4, 6, 6] and pairs.frame.tolist() == [0, 1, 1, 2, 0, 2]
    np.testing.assert_array_equal(pairs.unsorted(pairs.gaussian()).reshape(3, 2), selected)


def test_em_raises_the_likelihood() -> None:
    rng = np.random.default_rng(2)
    ubm = random_ubm(rng, 3)
    clouds = [rng.normal(size=(600, 3)) @ rng.normal(size=(3, 3)) + 3 * rng.normal(size=3) for _ in range(3)]
    feats = np.concatenate(clouds).astype(np.float32)
    values = []
    for _ in range(6):
        stats = FullStats.of_frames(GaussianSelector(ubm, ubm.diagonal(), 3, 3), 3, feats, np.ones(len(feats), np.float32))
        values.append(stats.log_likelihood)
        ubm = updated(ubm, stats, remove_low_count=False)
    slow = sum(np.log(np.exp(log_densities(ubm, x)).sum()) for x in feats.astype(float))
    assert (np.diff(values) > -0.01).all() and values[-1] > values[0] + 100 and slow > values[-1] - 0.5
    assert ubm.weights.sum() == pytest.approx(1)


def test_statistics_of_weighted_frames() -> None:
    rng = np.random.default_rng(3)
    ubm, feats, weights = random_ubm(rng), rng.normal(size=(40, 3)).astype(np.float32), rng.random(40).astype(np.float32)
    stats = FullStats.of_frames(GaussianSelector(ubm, ubm.diagonal(), 5, 5), 5, feats, weights)
    posteriors = np.exp(np.array([log_densities(ubm, x) for x in feats.astype(float)]))
    posteriors *= weights[:, None] / posteriors.sum(1, keepdims=True)
    np.testing.assert_allclose(stats.occupancy, posteriors.sum(0), rtol=1e-4)
    np.testing.assert_allclose(stats.x, posteriors.T @ feats, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(stats.xx, np.einsum("ti,td,te->ide", posteriors, feats, feats), rtol=1e-3, atol=1e-4)


def test_starved_gaussians_go() -> None:
    rng = np.random.default_rng(4)
    ubm = random_ubm(rng)
    stats = FullStats(np.array([500.0, 20, 500, 500, 500]), 500 * ubm.means, 500 * (ubm.covariances() + np.einsum(
        "id,ie->ide", ubm.means, ubm.means)), 0.0, 2020.0)
    fewer, same = updated(ubm, stats, True), updated(ubm, stats, False)
    assert fewer.num_gauss == 4 and same.num_gauss == 5
    np.testing.assert_allclose(same.means[1], ubm.means[1], rtol=1e-4)


@pytest.mark.parametrize("binary", [True, False])
def test_file(binary: bool) -> None:
    """What is written is read, and written again the same."""
    ubm = random_ubm(np.random.default_rng(5))
    first, second = io.BytesIO(), io.BytesIO()
    ubm.write(KaldiWriter(first, binary))
    again = FullGmm.read(KaldiReader(first.getvalue(), "ubm"))
    np.testing.assert_allclose(again.means, ubm.means, rtol=1e-4)
    again.write(KaldiWriter(second, binary))
    assert first.getvalue() == second.getvalue()


def test_other_files_are_refused(tmp_path: Path) -> None:
    ubm = random_ubm(np.random.default_rng(6))
    with (tmp_path / "final.dubm").open("wb") as stream:
        ubm.diagonal().write_mixture(KaldiWriter(stream))
    with pytest.raises(UserError, match="diagonal covariances, where a UBM with full ones is expected"):
        read_full_ubm(tmp_path / "final.dubm")
    write_full_ubm(tmp_path / "final.ubm", ubm)
    whole = (tmp_path / "final.ubm").read_bytes()
    (tmp_path / "final.ubm").write_bytes(whole[:len(whole) // 2])
    with pytest.raises(UserError, match=r"final\.ubm"):
        read_full_ubm(tmp_path / "final.ubm")
