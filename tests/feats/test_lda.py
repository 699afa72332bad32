"""LDA: against scipy's generalised eigenvectors, and what it must do to made-up classes."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

from pykaldist.errors import UserError
from pykaldist.feats.lda import LdaStats


def made_up(seed: int, dim: int = 6, classes: int = 4, frames: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    which = rng.integers(0, classes, frames)
    x = rng.normal(size=(classes, dim))[which] * 2 + rng.normal(size=(frames, dim)) @ rng.normal(size=(dim, dim)) + 1
    return x.astype(np.float32), which


def stats_of(x: np.ndarray, classes: np.ndarray, count: int, parts: int = 1) -> LdaStats:
    stats = LdaStats(x.shape[1], count)
    for rows in np.array_split(np.arange(len(x)), parts):
        stats.add(x[rows], classes[rows])
    return stats


@pytest.mark.parametrize("seed", range(3))
def test_directions_are_the_generalised_eigenvectors(seed: int) -> None:
    x, classes = made_up(seed)
    rows, full = stats_of(x, classes, 5, parts=7).transform(2)  # the fifth class never occurs
    centred = x - x.mean(axis=0, dtype=np.float64)
    between = sum((classes == c).mean() * np.outer(*[centred[classes == c].mean(axis=0)] * 2) for c in range(4))
    within = centred.T @ centred / len(x) - between
    values, vectors = scipy.linalg.eigh(between, within)
    for row, vector in zip(rows, vectors.T[::-1], strict=False):
        assert abs(row @ within @ vector) == pytest.approx(1.0, abs=1e-4)
    np.testing.assert_allclose(full @ within @ full.T, np.eye(6), atol=1e-5)
    np.testing.assert_allclose(full @ between @ full.T, np.diag(values[::-1]), atol=1e-4)
    np.testing.assert_array_equal(full[:2], rows)


def test_what_cannot_be_done() -> None:
    x, classes = made_up(0)
    with pytest.raises(UserError, match="from 6 dimensions cannot have 7"):
        stats_of(x, classes, 4).transform(7)
    with pytest.raises(UserError, match="has 5 frames; it needs more data"):
        stats_of(x[:5], classes[:5], 4).transform(2)
    with pytest.raises(UserError, match="does not vary within the classes"):
        stats_of(np.concatenate([x, np.ones((len(x), 1), np.float32)], axis=1), classes, 4).transform(2)
