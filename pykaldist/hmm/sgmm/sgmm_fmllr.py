"""fMLLR for subspace models: for each speaker the affine transform W = [A, b] of his features that fits a model with full covariances best.

With x+ = [x; 1] the auxiliary function of a speaker's frames is, up to a constant,
    beta log |det A| + tr(K^T W) - 1/2 sum_i tr(W^T Sigma_i^-1 W G_i),
    K = sum_tjmi g_tjmi Sigma_i^-1 (M_i v_jm + N_i v_s) x+_t^T,     G_i = sum_tjm g_tjmi x+_t x+_t^T,     beta = sum of the g_tjmi.
Covariances tie the rows of W together, so that they are not updated one by one (adaptation/fmllr.py). The gradient is
P = beta [A^-T, 0] + K - sum_i Sigma_i^-1 W G_i; a step goes along D = C P G^-1, with G the sum of the G_i and C^-1 the average of the
Sigma_i^-1: the curvature of the quadratic part is about that of tr(D^T C^-1 D G). Directions after the first are conjugate ones. How far
to go is found by Newton's method on k in beta log|det(A + k D_A)| + k m - 1/2 k^2 n.
Source of the statistics and the search along a line: Povey et al., 2011, appendix B.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pykaldist.errors import UserError
from pykaldist.hmm.adaptation.fmllr import identity
from pykaldist.hmm.sgmm.frames import FrameTerms, SgmmScorer, Speakers
from pykaldist.hmm.sgmm.full_gmm import add_products
from pykaldist.hmm.sgmm.model import AmSgmm2
from pykaldist.hmm.sgmm.posteriors import Items, Posteriors, Sums
from pykaldist.options import option

_LINE_STEPS, _LINE_PRECISION = 20, 1e-6


@dataclass
class SgmmFmllrOptions:
    """Options of fMLLR for subspace models, by Kaldi's names."""

    fmllr_iters: int = option(10, "steps in the estimation of a transform")
    fmllr_min_count: float = option(1000.0, "frames that a speaker needs; with fewer he keeps the identity")

    def __post_init__(self) -> None:
        if self.fmllr_iters < 1 or self.fmllr_min_count < 0:
            raise UserError(f"--fmllr-iters {self.fmllr_iters} --fmllr-min-count {self.fmllr_min_count:g}: expected a number from 1, and a "
                            "count that is not negative.")


@dataclass
class SgmmFmllrStats(Sums):
    """The statistics of a speaker: `beta`, `k` (D, D + 1) and `g` (I, D + 1, D + 1), float64."""

    beta: float
    k: np.ndarray
    g: np.ndarray

    @classmethod
    def of_frames(cls, scorer: SgmmScorer, feats: np.ndarray, terms: FrameTerms, speakers: Speakers, items: Items) -> SgmmFmllrStats:
        """Sum up frames (T, D) of one speaker."""
        model = scorer.model
        found = Posteriors.of(scorer, terms, speakers, items)
        mine = found.gauss.ravel()[terms.pairs.order]
        expected = found.expected.reshape(-1, model.phone_dim)[terms.pairs.order]
        extended = np.concatenate([feats, np.ones((len(feats), 1), np.float32)], axis=1)[terms.pairs.frame]
        count, width = model.num_gauss, model.dim + 1
        g, vectors = np.zeros((count, width, width)), np.zeros((count, model.phone_dim, width))
        add_products(extended * mine[:, None], extended, terms.pairs.bounds, g)
        add_products(expected, extended, terms.pairs.bounds, vectors)
        means = model.phone_projections @ vectors
        if speakers.any:
            means += speakers.shifts[0][:, :, None] * g[:, None, -1]
        return cls(float(mine.sum(dtype=np.float64)), (model.precisions @ means).sum(0), g)

    def value(self, model: AmSgmm2, transform: np.ndarray) -> float:
        """The auxiliary function at a transform (D, D + 1)."""
        quadratic = (transform * (model.precisions @ transform @ self.g).sum(0)).sum()
        return float(self.beta * np.linalg.slogdet(transform[:, :-1])[1] + (self.k * transform).sum() - 0.5 * quadratic)


def estimate_sgmm_fmllr(model: AmSgmm2, stats: SgmmFmllrStats, options: SgmmFmllrOptions) -> tuple[np.ndarray, float]:
    """The transform (D, D + 1) of a speaker, and what it raises the auxiliary function by; the identity where the frames are too few."""
    dim = model.dim
    transform = identity(dim)
    if stats.beta < options.fmllr_min_count:
        return transform, 0.0
    start = stats.value(model, transform)
    share = stats.g[:, -1, -1] / stats.beta
    left = np.linalg.inv(np.einsum("i,ide->de", share, model.precisions))
    total = stats.g.sum(0)
    right = np.linalg.inv(total + 1e-8 * np.trace(total) / len(total) * np.eye(len(total)))
    direction = before = before_scaled = np.zeros_like(transform)
    for _ in range(options.fmllr_iters):
        slope = stats.k - (model.precisions @ transform @ stats.g).sum(0)
        slope[:, :dim] += stats.beta * np.linalg.inv(transform[:, :dim]).T
        scaled = left @ slope @ right
        norm = (before * before_scaled).sum()
        direction = scaled + (max(0.0, ((slope - before) * scaled).sum() / norm) * direction if norm > 0 else 0.0)
        before, before_scaled = slope, scaled
        transform = transform + _length(model, stats, transform, direction) * direction
    gain = stats.value(model, transform) - start
    return (transform, gain) if np.isfinite(transform).all() and gain >= 0 else (identity(dim), 0.0)


def _length(model: AmSgmm2, stats: SgmmFmllrStats, transform: np.ndarray, direction: np.ndarray) -> float:
    """How far to go along a direction: where the auxiliary function is highest, or no lower than at the beginning."""
    dim = model.dim
    along = model.precisions @ direction @ stats.g
    m = float(((stats.k - (model.precisions @ transform @ stats.g).sum(0)) * direction).sum())
    n = float((along.sum(0) * direction).sum())
    relative = np.linalg.solve(transform[:, :dim], direction[:, :dim])  # log|A + k D| = log|A| + log|1 + k A^-1 D|
    roots = np.linalg.eigvals(relative)

    def value(k: float) -> float:
        return float(stats.beta * np.log(np.maximum(np.abs(1 + k * roots), 1e-300)).sum() + k * m - 0.5 * k * k * n)

    k, best = 0.0, 0.0
    for _ in range(_LINE_STEPS):
        terms = roots / (1 + k * roots)
        first, second = stats.beta * terms.sum().real + m - k * n, -stats.beta * (terms**2).sum().real - n
        step = -first / second if second < 0 else np.sign(first) * abs(first) / max(n, 1e-20)
        while value(k + step) < best and abs(step) > _LINE_PRECISION:
            step /= 2
        if abs(step) <= _LINE_PRECISION:
            break
        k += step
        best = value(k)
    return k
