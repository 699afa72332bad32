"""The i-vector extractor: a mixture of full-covariance Gaussians whose means depend on a vector, the i-vector.

Gaussian i of I has the weight w_i, the covariance S_i and, for an i-vector x of dimension K, the mean M_i x. The prior of x is a Gaussian
of mean p e_1 and covariance 1 (p is the prior offset: x_1 stands for what is common to all). Let a set of frames have the occupancies g_i
and the sums f_i of features under their posteriors. Then x given these is Gaussian, with the precision Q and the mean Q^-1 l:

    Q = 1 + sum_i g_i U_i,   U_i = M_i^T S_i^-1 M_i,        l = p e_1 + sum_i (S_i^-1 M_i)^T f_i.

Both are linear in the statistics, so that they are matrix products for many sets at once. The lower triangles of symmetric matrices are
kept row by row, as Kaldi's SpMatrix ("packed"). Weights do not depend on the i-vector, as in Kaldi's recipes, which train with
--use-weights=false. Source: P. Kenny, "Joint factor analysis of speaker and session variability", 2005; Kaldi's
ivector/ivector-extractor.
"""

from __future__ import annotations

import os
from functools import cached_property

import numpy as np

from pykaldist.errors import UserError
from pykaldist.hmm.gmm.gmm import AmDiagGmm
from pykaldist.hmm.sgmm.full_gmm import FullGmm
from pykaldist.io.atomic import atomic_open
from pykaldist.io.kaldi import KaldiReader, KaldiWriter

FIRST_PRIOR_OFFSET = 100.0  # of a new extractor: far from 0, so that the first dimension stands for the means of the UBM

_GAUSSIANS_AT_ONCE = 16


class IvectorExtractor:
    """The model: `weights` (I,), `projections` M (I, D, K), `precisions` S^-1 (I, D, D), all float64, and the prior offset."""

    def __init__(self, weights: np.ndarray, projections: np.ndarray, precisions: np.ndarray, prior_offset: float) -> None:
        self.weights, self.projections, self.precisions = weights, projections, precisions
        self.prior_offset = prior_offset

    @classmethod
    def initial(cls, ubm: AmDiagGmm | FullGmm, dim: int, rng: np.random.Generator) -> IvectorExtractor:
        """Make an extractor of i-vectors of dimension `dim` from a UBM, whose means are those at the prior's mean; the rest is random."""
        if dim < 2:
            raise UserError(f"--ivector-dim must be at least 2, found {dim}.")
        full = ubm if isinstance(ubm, FullGmm) else FullGmm.of_diagonal(ubm)
        projections = rng.standard_normal((ubm.num_gauss, ubm.dim, dim))
        projections[:, :, 0] = full.means / FIRST_PRIOR_OFFSET
        precisions = full.inv_covars.astype(np.float64)
        return cls(ubm.weights.astype(np.float64), projections, precisions, FIRST_PRIOR_OFFSET)

    @property
    def num_gauss(self) -> int:
        return self.projections.shape[0]

    @property
    def feat_dim(self) -> int:
        return self.projections.shape[1]

    @property
    def dim(self) -> int:
        return self.projections.shape[2]

    @cached_property
    def linear_maps(self) -> np.ndarray:
        """S_i^-1 M_i, (I, D, K)."""
        return self.precisions @ self.projections

    @cached_property
    def quadratic_maps(self) -> np.ndarray:
        """U_i, packed (I, K (K + 1) / 2)."""
        return packed(self.projections.transpose(0, 2, 1) @ self.linear_maps)

    def single_precision_maps(self) -> tuple[np.ndarray, np.ndarray]:
        """`linear_maps` and `quadratic_maps` in float32; of a few Gaussians at a time, as they are large in float64."""
        linear = np.empty(self.projections.shape, np.float32)
        quadratic = np.empty((self.num_gauss, self.dim * (self.dim + 1) // 2), np.float32)
        for begin in range(0, self.num_gauss, _GAUSSIANS_AT_ONCE):
            some = slice(begin, begin + _GAUSSIANS_AT_ONCE)
            maps = self.precisions[some] @ self.projections[some]
            linear[some], quadratic[some] = maps, packed(self.projections[some].transpose(0, 2, 1) @ maps)
        return linear, quadratic

    def check_ubm(self, ubm: AmDiagGmm, where: str) -> None:
        """Raise UserError where the extractor in the directory `where` is not of its UBM."""
        if (ubm.num_gauss, ubm.dim) != (self.num_gauss, self.feat_dim):
            raise UserError(f"{where}: final.ie has {self.num_gauss} Gaussians of dimension {self.feat_dim}, final.dubm {ubm.num_gauss} of "
                            f"{ubm.dim}; take files of one training.")

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> IvectorExtractor:
        """Read `final.ie`, binary or text. Raises UserError for one whose weights depend on the i-vector."""
        reader = KaldiReader.open(path)
        reader.expect("<IvectorExtractor>", "<w>")
        if reader.matrix().size:
            raise reader.error("its weights depend on the i-vector; train it with --use-weights=false")
        reader.expect("<w_vec>")
        weights = reader.vector().astype(np.float64)
        reader.expect("<M>")
        projections = [reader.matrix() for _ in range(reader.count("Gaussians", 8))]
        if not projections or len(projections) != len(weights) or len({m.shape for m in projections}) > 1 or projections[0].size == 0:
            raise reader.error(f"expected {len(weights)} matrices of one shape, found {len(projections)}")
        reader.expect("<SigmaInv>")
        lower = np.array([reader.triangle(len(projections[0])) for _ in projections], np.float64)
        diagonal = np.arange(len(projections[0]))
        precisions = lower + lower.transpose(0, 2, 1)
        precisions[:, diagonal, diagonal] = lower[:, diagonal, diagonal]
        reader.expect("<IvectorOffset>")
        prior_offset = reader.floating()
        reader.expect("</IvectorExtractor>")
        result = cls(weights, np.array(projections, np.float64), precisions, prior_offset)
        if not all(np.isfinite(array).all() for array in (weights, result.projections, precisions, prior_offset)):
            raise reader.error("expected finite numbers")
        return result

    def write(self, path: str | os.PathLike[str], binary: bool = True) -> None:
        """Write it as Kaldi does."""
        with atomic_open(path, "wb") as stream:
            writer = KaldiWriter(stream, binary)
            writer.token("<IvectorExtractor>", "<w>")
            writer.matrix(np.zeros((0, 0)))
            writer.token("<w_vec>")
            writer.vector(self.weights)
            writer.token("<M>")
            writer.integer(self.num_gauss)
            for matrix in self.projections:
                writer.matrix(matrix)
            writer.token("<SigmaInv>")
            for matrix in self.precisions:
                writer.triangle(matrix)
            writer.token("<IvectorOffset>")
            writer.double(self.prior_offset)
            writer.token("</IvectorExtractor>")


def packed(matrices: np.ndarray) -> np.ndarray:
    """The lower triangles of symmetric matrices (..., K, K), row by row (..., K (K + 1) / 2)."""
    dim = matrices.shape[-1]
    result = np.empty((*matrices.shape[:-2], dim * (dim + 1) // 2))
    for row in range(dim):
        result[..., row * (row + 1) // 2:][..., :row + 1] = matrices[..., row, :row + 1]
    return result


def unpacked(triangles: np.ndarray, dim: int) -> np.ndarray:
    """The symmetric matrices (..., dim, dim) of packed lower triangles."""
    rows, columns = np.tril_indices(dim)
    result = np.empty((*triangles.shape[:-1], dim, dim))
    result[..., rows, columns] = triangles
    result[..., columns, rows] = triangles
    return result
