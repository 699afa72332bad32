"""Basis fMLLR: a speaker's transform is the identity and a sum of few matrices, so that seconds of speech are enough to estimate it.

W = [I, 0] + sum_n d_n B_n. The matrices B_n (D, D + 1), the basis, come from the training data: each utterance (or speaker) s with beta_s
frames has, at the identity, the gradient of its log-likelihood (fmllr.py)
    P_s = beta_s [I, 0] + K_s - S_s,     S_s the rows w_d^T G_d of the identity,
as a vector p_s. Where H is the expected negative Hessian a frame under the model, with the Cholesky factor C, and
M = sum_s p_s p_s^T / beta_s, the eigenvectors u_n of C^-1 M C^-T, the largest eigenvalues first, are the directions in which speakers
differ most in units of what it changes the likelihood; B_n = C^-T u_n. H has a block G_d for each row d, the mean over pdfs of
sum_m c_m / sigma_md^2 (mu+ mu+^T + diag(sigma^2, 0)), and 1 where it couples the elements (i, j) and (j, i) of A, from log |det A|.

A speaker gets min(N, size_scale beta) matrices. His d_n are found by steepest ascent, which in these coordinates is preconditioned: the
step Delta = sum_n <B_n, P> B_n, its length by Newton's method on
    f(k) = beta sum_i log |1 + k lambda_i| + k b - k^2 c / 2,
lambda_i the eigenvalues of A^-1 Delta_A, b = <Delta, K - S>, c = sum_d Delta_d G_d Delta_d.
Source: D. Povey and K. Yao, "A basis representation of constrained MLLR transforms for robust adaptation", Computer Speech and Language 26,
2012; file form and defaults: Kaldi's transform/basis-fmllr-diag-gmm.
"""

from __future__ import annotations

import os
from collections.abc import Container, Mapping
from dataclasses import dataclass, field

import numpy as np

from pykaldist.errors import UserError
from pykaldist.hmm.adaptation.fmllr import FmllrOptions, FmllrStats, identity
from pykaldist.hmm.gmm.gmm import AmDiagGmm
from pykaldist.io.atomic import atomic_open
from pykaldist.io.kaldi import KaldiReader, KaldiWriter
from pykaldist.options import option

_BLOCK = 256  # groups whose gradients one product sums up


@dataclass
class BasisFmllrOptions:
    """Options of estimating transforms in a basis, by Kaldi's names."""

    num_iters: int = option(10, "steps of the estimation of a transform in a basis")
    size_scale: float = option(0.2, "matrices of the basis that a speaker's transform may have, a frame of his speech")
    step_size_iters: int = option(3, "iterations in which the length of each step is found")

    def __post_init__(self) -> None:
        if self.num_iters < 1 or self.step_size_iters < 1:
            raise UserError(f"--num-iters and --step-size-iters must be at least 1, found {self.num_iters} and {self.step_size_iters}.")
        if not self.size_scale > 0:
            raise UserError(f"--size-scale must be above 0, found {self.size_scale:g}.")


@dataclass
class BasisFmllr(FmllrOptions):
    """fMLLR in a basis: `basis` is float64 (N, D, D + 1), the most useful matrix first."""

    basis: np.ndarray = field(default_factory=lambda: np.zeros((0, 0, 1)))
    search: BasisFmllrOptions = field(default_factory=BasisFmllrOptions)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fmllr_update_type != "full":
            raise UserError(f"--fmllr-update-type {self.fmllr_update_type}: with a basis transforms are what it makes them; leave it out.")

    def estimate(self, stats: FmllrStats) -> np.ndarray:
        """The transform (D, D + 1) of a speaker; the identity where his frames are too few. Raises UserError for another dimension."""
        dim = len(stats.k)
        if self.basis.shape[1:] != (dim, dim + 1):
            raise UserError(f"the fMLLR basis has matrices of {self.basis.shape[1]} x {self.basis.shape[2]}, expected {dim} x {dim + 1} "
                            f"for features of dimension {dim}; make it again for this system (steps/get_fmllr_basis.sh).")
        transform = identity(dim)
        count = min(len(self.basis), int(self.search.size_scale * stats.beta))
        if stats.beta < self.fmllr_min_count or count == 0:
            return transform
        basis = self.basis[:count].reshape(count, -1)
        for _ in range(self.search.num_iters):
            gradient, scatter = gradient_of(stats, transform)
            step = ((basis @ gradient.ravel()) @ basis).reshape(transform.shape)
            transform += _length(stats, transform, scatter, step, self.search.step_size_iters) * step
        return transform if np.isfinite(transform).all() and stats.objective(transform) >= stats.objective(identity(dim)) else identity(dim)


def gradient_of(stats: FmllrStats, transform: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The gradient (D, D + 1) of the log-likelihood at a transform, and its part S, whose rows are w_d^T G_d."""
    scatter = np.einsum("dij,dj->di", stats.g, transform)
    gradient = stats.k - scatter
    gradient[:, :-1] += stats.beta * np.linalg.inv(transform[:, :-1]).T
    return gradient, scatter


def _length(stats: FmllrStats, transform: np.ndarray, scatter: np.ndarray, step: np.ndarray, iterations: int) -> float:
    """How far to go along a step; never to where the log-likelihood is lower, or the determinant has another sign."""
    values = np.linalg.eigvals(np.linalg.solve(transform[:, :-1], step[:, :-1]))
    b = float((step * (stats.k - scatter)).sum())
    c = float(np.einsum("di,dij,dj->", step, stats.g, step))

    def height(k: float) -> float:
        scale = 1 + k * values
        real = scale[np.abs(scale.imag) < 1e-12].real
        return -np.inf if (real <= 0).any() else float(stats.beta * np.log(np.abs(scale)).sum() + k * b - 0.5 * k * k * c)

    length, reached = 0.0, 0.0
    for _ in range(iterations):
        ratio = values / (1 + length * values)
        slope = stats.beta * ratio.sum().real + b - length * c
        bend = min(-c - stats.beta * (ratio * ratio).sum().real, -c / 10)
        change = -slope / bend if bend < 0 else 0.0
        while abs(change) > 1e-10 and height(length + change) < reached:
            change /= 2
        if abs(change) > 1e-10:
            length, reached = length + change, height(length + change)
    return length


@dataclass
class GradientScatter:
    """The scatter sum_s p_s p_s^T / beta_s of the gradients of groups of frames, such as speakers.

    `scatter` is (D (D + 1), D (D + 1)) float64, and `total` counts the frames (of weight 1). Groups that may have frames elsewhere are in
    `open`, with beta and K - S, until `closed` adds them. Groups without frames count for nothing.
    """

    scatter: np.ndarray
    total: float
    open: dict[str, tuple[float, np.ndarray]]

    @classmethod
    def of_frames(cls, feats: np.ndarray, expected: np.ndarray, weights: np.ndarray, rows: Mapping[str, np.ndarray],
                  whole: Container[str]) -> GradientScatter:
        """Sum up frames, of which the group `name` has `rows[name]` of `feats` (N, D), `expected` (N, 2 D) and `weights` (N,).

        The groups of `whole` have no other frames.
        """
        dim = feats.shape[1]
        found = cls(np.zeros((dim * (dim + 1),) * 2), 0.0, {})
        for number, (name, mine) in enumerate(rows.items(), 1):
            x, own = feats[mine], expected[mine]
            residual = own[:, :dim] - own[:, dim:] * x  # d of a frame's log-likelihood by its transformed features
            x = np.concatenate([x, np.ones((len(x), 1), x.dtype)], axis=1)
            found.open[name] = float(weights[mine].sum(dtype=np.float64)), residual.T.astype(np.float64) @ x
            if number % _BLOCK == 0:
                found._close(whole)
        found._close(whole)
        return found

    def __add__(self, other: GradientScatter) -> GradientScatter:
        still = dict(self.open)
        for name, (beta, gradient) in other.open.items():
            before = still.get(name)
            still[name] = (beta, gradient) if before is None else (before[0] + beta, before[1] + gradient)
        return GradientScatter(self.scatter + other.scatter, self.total + other.total, still)

    def closed(self) -> GradientScatter:
        """The scatter of all groups, none of which has other frames."""
        found = GradientScatter(self.scatter.copy(), self.total, dict(self.open))
        found._close(self.open)
        return found

    def _close(self, whole: Container[str]) -> None:
        """Add the groups of `whole` to the scatter, as one matrix product."""
        done = [self.open.pop(name) for name in list(self.open) if name in whole]
        gradients = [(beta * identity(len(gradient)) + gradient).ravel() / np.sqrt(beta) for beta, gradient in done if beta > 0]
        if gradients:
            stacked = np.stack(gradients)
            self.scatter += stacked.T @ stacked
            self.total += sum(beta for beta, _ in done)


def preconditioner(gmm: AmDiagGmm) -> np.ndarray:
    """H, the expected negative Hessian of the log-likelihood of a frame at the identity: (D (D + 1), D (D + 1)) float64."""
    dim = gmm.dim
    inv_vars = gmm.inv_vars.astype(np.float64)
    mean = np.concatenate([gmm.means_invvars / inv_vars, np.ones((len(inv_vars), 1))], axis=1)
    spread = np.concatenate([1 / inv_vars, np.zeros((len(inv_vars), 1))], axis=1)
    weight = gmm.weights.astype(np.float64)[:, None] * inv_vars / gmm.num_pdfs  # (G, D)
    result = np.zeros((dim, dim + 1, dim, dim + 1))
    for d in range(dim):
        result[d, :, d, :] = (mean * weight[:, d : d + 1]).T @ mean + np.diag(weight[:, d] @ spread)
    i, j = np.indices((dim, dim))
    result[i, j, j, i] += 1
    return result.reshape(dim * (dim + 1), dim * (dim + 1))


def estimate_basis(gmm: AmDiagGmm, scatter: np.ndarray, total: float) -> tuple[np.ndarray, float]:
    """The whole basis (D (D + 1), D, D + 1) float64; and what it can raise the log-likelihood by, a frame of the training data."""
    factor = np.linalg.cholesky(preconditioner(gmm))
    half = np.linalg.solve(factor, scatter)
    values, vectors = np.linalg.eigh(np.linalg.solve(factor, half.T))
    basis = np.linalg.solve(factor.T, vectors[:, ::-1]).T
    return basis.reshape(-1, gmm.dim, gmm.dim + 1), float(values.sum() / (2 * total))


def write_basis(path: str | os.PathLike[str], basis: np.ndarray) -> None:
    """Write Kaldi's file `fmllr.basis`, of float32."""
    with atomic_open(path, "wb") as stream:
        writer = KaldiWriter(stream)
        writer.token("<BASISFMLLRPARAM>", "<NUMBASIS>")
        writer.integer(len(basis), unsigned=True)
        writer.token("<BASIS>")
        for matrix in basis:
            writer.matrix(matrix.astype(np.float32))
        writer.token("</BASISFMLLRPARAM>")


def read_basis(path: str | os.PathLike[str]) -> np.ndarray:
    """Read a file `fmllr.basis`, binary or text: (N, D, D + 1) float64. Raises UserError for another, or a damaged one."""
    reader = KaldiReader.open(path)
    reader.expect("<BASISFMLLRPARAM>", "<NUMBASIS>")
    count = reader.count("matrices")
    reader.expect("<BASIS>")
    matrices = [reader.matrix() for _ in range(count)]
    reader.expect("</BASISFMLLRPARAM>")
    shapes = {matrix.shape for matrix in matrices}
    if len(shapes) != 1 or any(rows + 1 != cols for rows, cols in shapes) or not all(np.isfinite(matrix).all() for matrix in matrices):
        raise UserError(f"{path}: expected matrices of finite numbers, all of D x (D + 1) for one D, found {count} of "
                        f"{', '.join(f'{rows} x {cols}' for rows, cols in sorted(shapes)) or 'none'}; make it again "
                        "(steps/get_fmllr_basis.sh).")
    return np.stack(matrices).astype(np.float64)
