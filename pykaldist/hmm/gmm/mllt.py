"""MLLT (a global semi-tied covariance): the square matrix M that makes features fit Gaussians with diagonal covariances best.

For fixed variances the log-likelihood of features M x under means M mu is, up to a constant,
    beta log |det M| - 1/2 sum_d m_d^T G_d m_d,     G_d = sum_t sum_g gamma_tg / sigma_gd^2 (x_t - mu_g)(x_t - mu_g)^T,
m_d the rows of M, beta the frames. With the others fixed the best row is m_d = G_d^-1 c_d sqrt(beta / c_d^T G_d^-1 c_d), c_d the row of
cofactors, the d-th column of M^-1; rows are updated in turn. Multiplied out, G_d has a part that is a sum over frames of x x^T, weighted by
the expected 1 / sigma_d^2, and one that follows from the Gaussians' sums. Source: M. J. F. Gales, "Semi-tied covariance matrices for hidden
Markov models", IEEE Trans. Speech and Audio Processing 7 (1999); Kaldi's transform/mllt.cc.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from pykaldist.errors import UserError
from pykaldist.hmm.gmm.aligned_frames import AlignedFrames
from pykaldist.hmm.gmm.engine import Engine
from pykaldist.hmm.gmm.gmm import AmDiagGmm, GmmStats
from pykaldist.kernels import kernel

SWEEPS = 200


def mllt_stats(gmm: AmDiagGmm, parts: Iterable[tuple[np.ndarray, AlignedFrames]], engine: Engine | None = None) -> tuple[
        np.ndarray, float]:
    """The statistics (G, beta) of MLLT: G is (D, D, D) float64, beta the number of frames.

    `parts` are features (N, D), and which of their frames are aligned with what.
    """
    engine = engine or Engine()
    stats, products = gmm.new_stats(), np.zeros((gmm.dim,) * 3)
    for feats, frames in parts:
        mine, _ = engine.accumulate(gmm, feats, frames)
        stats = GmmStats(stats.occupancy + mine.occupancy, stats.x + mine.x, stats.x2 + mine.x2)
        products += engine.outer_products(feats, engine.expected_parameters(gmm, feats, frames)[:, gmm.dim:])
    if not stats.occupancy.any():
        raise UserError("there is no frame of speech to estimate MLLT from; check that transcripts and audio belong together.")
    inv_vars = gmm.inv_vars.astype(np.float64)
    means = gmm.means_invvars / inv_vars
    cross = np.stack([(stats.x * inv_vars[:, d:d + 1]).T @ means for d in range(gmm.dim)])
    squares = np.stack([(means * (stats.occupancy * inv_vars[:, d])[:, None]).T @ means for d in range(gmm.dim)])
    return products - cross - cross.transpose(0, 2, 1) + squares, float(stats.occupancy.sum())


def estimate_mllt(stats: np.ndarray, beta: float) -> tuple[np.ndarray, float]:
    """Estimate M (D, D) float64 from `mllt_stats`; returns it, and what it raises the log-likelihood by, a frame."""
    matrix = np.eye(len(stats))
    before = _objective(matrix, stats, beta)
    _update_rows(matrix, stats, np.linalg.inv(stats), beta, SWEEPS)
    return matrix, (_objective(matrix, stats, beta) - before) / beta


def _objective(matrix: np.ndarray, stats: np.ndarray, beta: float) -> float:
    return float(beta * np.linalg.slogdet(matrix)[1] - 0.5 * np.einsum("di,dij,dj->", matrix, stats, matrix))


@kernel
def _update_rows(matrix: np.ndarray, stats: np.ndarray, inverses: np.ndarray, beta: float, sweeps: int) -> None:
    for _ in range(sweeps):
        inverse = np.linalg.inv(matrix)
        for d in range(len(matrix)):
            cofactor = np.ascontiguousarray(inverse[:, d])
            row = inverses[d] @ cofactor
            row *= np.sqrt(beta / (cofactor @ row))
            change = (row - matrix[d]) @ inverse
            matrix[d] = row
            inverse -= np.outer(cofactor, change / (1.0 + change[d]))
