"""One Gaussian mixture with full covariances: Kaldi's `FullGMM`, the background model (UBM) of a subspace model.

With the precision P = Sigma^-1 = L L^T the log-density of x is  log w + 1/2 log|P| - D/2 log 2 pi - 1/2 |(x - mu) L|^2, so a frame costs
one product with a matrix a Gaussian. No frame is scored against all of them: those with the best scores under the diagonal of the
covariances are candidates, and the best of these by their full scores are a frame's selected Gaussians. EM gives a frame to its selected
Gaussians alone.
Source: Kaldi's gmm/full-gmm.cc, gmm/mle-full-gmm.cc and sgmm2/am-sgmm2.cc (GaussianSelection); steps/train_ubm.sh.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from pykaldist.errors import UserError
from pykaldist.hmm.gmm.gmm import LOG_2PI, AmDiagGmm
from pykaldist.io.atomic import atomic_open
from pykaldist.io.kaldi import KaldiReader, KaldiWriter
from pykaldist.kernels import kernel

PART = 8192  # frames that are worked on at a time
_MAX_CONDITION = 1e5  # of a covariance
_MIN_VARIANCE, _MIN_OCCUPANCY = 0.001, 100.0


class FullGmm:
    """A mixture of I Gaussians of dimension D with full covariances.

    `weights` (I,), `means_invcovars` (I, D), the means times the precisions, `inv_covars` (I, D, D), the precisions, and `gconsts` (I,) are
    float32, as in the file; without `gconsts` they are computed.
    """

    def __init__(self, weights: np.ndarray, means_invcovars: np.ndarray, inv_covars: np.ndarray, gconsts: np.ndarray | None = None) -> None:
        self.weights = np.ascontiguousarray(weights, np.float32)
        self.means_invcovars = np.ascontiguousarray(means_invcovars, np.float32)
        self.inv_covars = np.ascontiguousarray(inv_covars, np.float32)
        precisions = self.inv_covars.astype(np.float64)
        self.means = np.linalg.solve(precisions, self.means_invcovars.astype(np.float64)[:, :, None])[:, :, 0]
        if gconsts is None:
            with np.errstate(divide="ignore"):
                gconsts = (np.log(self.weights.astype(np.float64)) + 0.5 * np.linalg.slogdet(precisions)[1]
                           - 0.5 * (self.dim * LOG_2PI + (self.means * self.means_invcovars).sum(1)))
        self.gconsts = np.ascontiguousarray(gconsts, np.float32)

    @classmethod
    def of_moments(cls, weights: np.ndarray, means: np.ndarray, covariances: np.ndarray) -> FullGmm:
        """The mixture of Gaussians with these means (I, D) and covariances (I, D, D)."""
        precisions = np.linalg.inv(covariances)
        precisions = 0.5 * (precisions + precisions.transpose(0, 2, 1))
        return cls(weights, np.einsum("ide,ie->id", precisions, means), precisions)

    @classmethod
    def of_diagonal(cls, gmm: AmDiagGmm) -> FullGmm:
        """The mixture of a model of one pdf, whose covariances are diagonal."""
        inv_covars = np.zeros((gmm.num_gauss, gmm.dim, gmm.dim))
        inv_covars[:, np.arange(gmm.dim), np.arange(gmm.dim)] = gmm.inv_vars
        return cls(gmm.weights, gmm.means_invvars, inv_covars)

    @property
    def dim(self) -> int:
        return self.means_invcovars.shape[1]

    @property
    def num_gauss(self) -> int:
        return len(self.weights)

    def covariances(self) -> np.ndarray:
        """The covariances (I, D, D) float64."""
        return np.linalg.inv(self.inv_covars.astype(np.float64))

    def diagonal(self) -> AmDiagGmm:
        """The mixture, as a model of one pdf, with the variances on the diagonals of the covariances."""
        inv_vars = 1.0 / np.diagonal(self.covariances(), axis1=1, axis2=2)
        return AmDiagGmm(np.array([0, self.num_gauss]), self.weights, self.means * inv_vars, inv_vars)

    @classmethod
    def read(cls, reader: KaldiReader) -> FullGmm:
        """Read a `<FullGMM>`, binary or text."""
        reader.expect("<FullGMM>")
        parts = {}
        while (token := reader.token()) != "</FullGMM>":
            if token in ("<GCONSTS>", "<WEIGHTS>"):
                parts[token] = reader.vector()
            elif token == "<MEANS_INVCOVARS>":
                parts[token] = reader.matrix()
            elif token == "<INV_COVARS>" and "<MEANS_INVCOVARS>" in parts:
                count, dim = parts["<MEANS_INVCOVARS>"].shape
                parts[token] = np.stack([symmetric_of_triangle(reader.triangle(dim)) for _ in range(count)])
            else:
                raise reader.error(f"expected part of a mixture with full covariances, found {token!r}")
        weights, means = parts.get("<WEIGHTS>", np.empty(0)), parts.get("<MEANS_INVCOVARS>", np.empty((0, 0)))
        if not len(weights) or len(means) != len(weights) or "<INV_COVARS>" not in parts:
            raise reader.error(f"expected a mixture with full covariances, found {len(weights)} weights and {len(means)} means")
        return cls(weights, means, parts["<INV_COVARS>"], parts.get("<GCONSTS>"))

    def write(self, writer: KaldiWriter) -> None:
        """Write it as Kaldi does."""
        writer.token("<FullGMM>")
        writer.end_line()
        writer.token("<GCONSTS>")
        writer.vector(self.gconsts)
        writer.token("<WEIGHTS>")
        writer.vector(self.weights)
        writer.token("<MEANS_INVCOVARS>")
        writer.matrix(self.means_invcovars)
        writer.token("<INV_COVARS>")
        for triangle in self.inv_covars:
            writer.triangle(triangle)
        writer.token("</FullGMM>")
        writer.end_line()


def symmetric_of_triangle(lower: np.ndarray) -> np.ndarray:
    """The symmetric matrix that has this lower triangle."""
    return lower + np.tril(lower, -1).T


def read_full_ubm(path: str | os.PathLike[str]) -> FullGmm:
    """Read a `final.ubm`; raises UserError where it is damaged or has diagonal covariances."""
    reader = KaldiReader.open(path)
    if reader.peek_token() in ("<DiagGMM>", "<DiagGMMBegin>"):
        raise UserError(f"{os.fspath(path)} has diagonal covariances, where a UBM with full ones is expected; make one with "
                        "steps/train_ubm.sh.")
    return FullGmm.read(reader)


def write_full_ubm(path: str | os.PathLike[str], ubm: FullGmm) -> None:
    """Write a `final.ubm`."""
    with atomic_open(path, "wb") as stream:
        ubm.write(KaldiWriter(stream))


@dataclass
class Pairs:
    """The pairs of a frame and a Gaussian selected for it, sorted by Gaussian, so that each Gaussian's are one matrix.

    Pair number `order[p]`, counted along the rows of the selection (T, G), is the p-th of them; those of Gaussian i are `bounds[i]` to
    `bounds[i + 1]`. `frame` (P,) is the frame of each.
    """

    order: np.ndarray
    bounds: np.ndarray
    frame: np.ndarray

    @classmethod
    def of(cls, selected: np.ndarray, num_gauss: int) -> Pairs:
        """Sort the pairs of a selection (T, G)."""
        flat = selected.ravel()
        order = np.argsort(flat, kind="stable")
        return cls(order, np.searchsorted(flat[order], np.arange(num_gauss + 1)), order // selected.shape[1])

    def gaussian(self) -> np.ndarray:
        """The Gaussian of each pair (P,)."""
        return np.repeat(np.arange(len(self.bounds) - 1), np.diff(self.bounds))

    def unsorted(self, values: np.ndarray) -> np.ndarray:
        """Values of the sorted pairs (P, ...), in the order of the selection."""
        result = np.empty_like(values)
        result[self.order] = values
        return result


class GaussianSelector:
    """Finds the Gaussians of a UBM that matter in a frame: the best `count` of the `candidates` with the best diagonal scores."""

    def __init__(self, ubm: FullGmm, diagonal: AmDiagGmm, count: int = 15, candidates: int = 50) -> None:
        self.count, self._candidates = min(count, ubm.num_gauss), min(candidates, ubm.num_gauss)
        if not 1 <= count <= candidates:
            raise UserError(f"expected 1 to {candidates} selected Gaussians, found {count}.")
        self._diagonal = diagonal
        self._means = ubm.means.astype(np.float32)
        self._roots = cholesky(ubm.inv_covars).astype(np.float32)
        self._constants = (ubm.gconsts + 0.5 * (ubm.means * ubm.means_invcovars).sum(1)).astype(np.float32)

    def candidates(self, feats: np.ndarray) -> np.ndarray:
        """The Gaussians (T, candidates) int16 with the best diagonal scores, in no order."""
        scores = self._diagonal.scores(feats)
        first = scores.shape[1] - self._candidates
        return np.argpartition(scores, first, axis=1)[:, first:].astype(np.int16) if first else np.tile(
            np.arange(scores.shape[1], dtype=np.int16), (len(feats), 1))

    def select(self, feats: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The selected Gaussians (T, count) int16 of frames (T, D) float32, best first, and their log-likelihoods with their weights."""
        candidates = self.candidates(feats)
        pairs = Pairs.of(candidates, len(self._means))
        centred = feats[pairs.frame] - self._means[pairs.gaussian()]
        rows = by_gaussian(centred, pairs.bounds, self._roots)
        scores = self._constants[candidates] + pairs.unsorted(-0.5 * np.einsum("pd,pd->p", rows, rows)).reshape(candidates.shape)
        best = np.argsort(-scores, axis=1, kind="stable")[:, :self.count]
        return np.take_along_axis(candidates, best, 1), np.take_along_axis(scores, best, 1)


@dataclass
class FullStats:
    """Sufficient statistics (float64): occupancies (I,), sums of x (I, D) and of x x^T (I, D, D); the log-likelihood and weight of all."""

    occupancy: np.ndarray
    x: np.ndarray
    xx: np.ndarray
    log_likelihood: float
    weight: float

    def __add__(self, other: FullStats) -> FullStats:
        return FullStats(self.occupancy + other.occupancy, self.x + other.x, self.xx + other.xx,
                         self.log_likelihood + other.log_likelihood, self.weight + other.weight)

    @classmethod
    def of_frames(cls, selector: GaussianSelector, num_gauss: int, feats: np.ndarray, weights: np.ndarray) -> FullStats:
        """Sum up frames (T, D) float32 with weights (T,) float32, each divided among its selected Gaussians."""
        selected, scores = selector.select(feats)
        highest = scores.max(1, keepdims=True)
        posteriors = np.exp(scores - highest)
        total = posteriors.sum(1, keepdims=True)
        posteriors *= weights[:, None] / total
        pairs = Pairs.of(selected, num_gauss)
        rows, mine = feats[pairs.frame], posteriors.ravel()[pairs.order]
        gaussian = pairs.gaussian()
        scaled = rows * mine[:, None]
        x = np.zeros((num_gauss, feats.shape[1]))
        np.add.at(x, gaussian, scaled)
        xx = np.zeros((num_gauss, feats.shape[1], feats.shape[1]))
        add_products(scaled, rows, pairs.bounds, xx)
        return cls(np.bincount(gaussian, mine, num_gauss), x, xx, float(weights @ (highest + np.log(total))[:, 0].astype(np.float64)),
                   float(weights.sum(dtype=np.float64)))


def updated(ubm: FullGmm, stats: FullStats, remove_low_count: bool, min_weight: float = 1e-5) -> FullGmm:
    """The mixture of maximum likelihood for these statistics.

    A Gaussian with fewer than 100 frames, or a weight of less than `min_weight`, is removed, or without `remove_low_count` keeps its mean
    and covariance. Eigenvalues of covariances are floored.
    """
    share = stats.occupancy / max(stats.occupancy.sum(), 1e-300)
    fed = (stats.occupancy > _MIN_OCCUPANCY) & (share > min_weight)
    if remove_low_count and not fed.any():
        fed[stats.occupancy.argmax()] = True
    occupancy = np.where(fed, stats.occupancy, 1.0)
    means = np.where(fed[:, None], stats.x / occupancy[:, None], ubm.means)
    covariances = stats.xx / occupancy[:, None, None] - means[:, :, None] * means[:, None, :]
    covariances = np.where(fed[:, None, None], covariances, ubm.covariances())
    values, vectors = np.linalg.eigh(covariances)
    values = np.maximum(values, np.maximum(_MIN_VARIANCE, values[:, -1:] / _MAX_CONDITION))
    covariances = (vectors * values[:, None, :]) @ vectors.transpose(0, 2, 1)
    kept = fed if remove_low_count else np.ones_like(fed)
    weights = np.maximum(share, min_weight)[kept]
    return FullGmm.of_moments(weights / weights.sum(), means[kept], covariances[kept])


def cholesky(precisions: np.ndarray) -> np.ndarray:
    """The lower triangular roots L (I, D, D) float64 of symmetric matrices L L^T."""
    return np.linalg.cholesky(precisions.astype(np.float64))


@kernel(nogil=True)
def by_gaussian(rows: np.ndarray, bounds: np.ndarray, matrices: np.ndarray) -> np.ndarray:
    """Rows sorted by Gaussian (P, D), those of Gaussian i, `bounds[i]` to `bounds[i + 1]`, times `matrices[i]` (D, E): (P, E)."""
    result = np.empty((len(rows), matrices.shape[2]), rows.dtype)
    for i in range(len(matrices)):
        first, end = bounds[i], bounds[i + 1]
        if end > first:
            result[first:end] = np.dot(rows[first:end], matrices[i])
    return result


@kernel(nogil=True)
def add_products(left: np.ndarray, right: np.ndarray, bounds: np.ndarray, sums: np.ndarray) -> None:
    """Add the products left^T right of each Gaussian's rows, (P, D) and (P, E), to its `sums` (I, D, E) float64."""
    for i in range(len(sums)):
        first, end = bounds[i], bounds[i + 1]
        if end > first:
            sums[i] += np.dot(left[first:end].T, right[first:end])
