"""MLLT (a global semi-tied covariance): the square matrix M that makes features fit Gaussians with diagonal covariances best.

For fixed variances the log-likelihood of features M x under means M mu is, up to a constant,
    beta log |det M| - 1/2 sum_d m_d^T G_d m_d,     G_d = sum_t sum_g gamma_tg / sigma_gd^2 (x_t - mu_g)(x_t - mu_g)^T,
m_d the rows of M, beta the frames. With the others fixed the best row is m_d = G_d^-1 c_d sqrt(beta / c_d^T G_d^-1 c_d), c_d the row of
cofactors, the d-th column of M^-1; rows are updated in turn. Multiplied out, G_d has a part that is a sum over frames of x x^T, weighted by
the expected 1 / sigma_d^2, and one that follows from the Gaussians' sums. Source: M. J. F. Gales, "Semi-tied covariance matrices for hidden
Markov models", IEEE Trans. Speech and Audio Processing 7 (1999); Kaldi's transform/mllt.cc.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pykaldist.errors import UserError
from pykaldist.hmm.gmm.aligned_frames import AlignedFrames
from pykaldist.hmm.gmm.engine import Engine
from pykaldist.hmm.gmm.gmm import AmDiagGmm, GmmStats
from pykaldist.kernels import kernel

SWEEPS = 200


@dataclass
class MlltSums:
    """What is summed up over frames for MLLT: the Gaussians' statistics, and the weighted sums of x x^T, (D, D, D) float64."""

    gmm: GmmStats
    products: np.ndarray

    @classmethod
    def of_frames(cls, gmm: AmDiagGmm, feats: np.ndarray, frames: AlignedFrames, engine: Engine) -> MlltSums:
        """Sum up features (N, D), of which `frames` are aligned."""
        return cls(engine.accumulate(gmm, feats, frames)[0],
                   engine.outer_products(feats, engine.expected_parameters(gmm, feats, frames)[:, gmm.dim:]))

    def __add__(self, other: MlltSums) -> MlltSums:
        return MlltSums(self.gmm + other.gmm, self.products + other.products)


def mllt_stats(gmm: AmDiagGmm, sums: MlltSums | None) -> tuple[np.ndarray, float]:
    """The statistics (G, beta) of MLLT: G is (D, D, D) float64, beta the number of frames. Raises UserError where there are none."""
    if sums is None or not sums.gmm.occupancy.any():
        raise UserError("there is no frame of speech to estimate MLLT from; check that transcripts and audio belong together.")
    stats, inv_vars = sums.gmm, gmm.inv_vars.astype(np.float64)
    means = gmm.means_invvars / inv_vars
    cross = np.stack([(stats.x * inv_vars[:, d:d + 1]).T @ means for d in range(gmm.dim)])
    squares = np.stack([(means * (stats.occupancy * inv_vars[:, d])[:, None]).T @ means for d in range(gmm.dim)])
    return sums.products - cross - cross.transpose(0, 2, 1) + squares, float(stats.occupancy.sum())


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
