"""The training of the i-vector extractor by EM.

Posteriors of the UBM stay as they are, so that only the i-vector of each utterance is hidden. With the occupancies g_ui and the sums f_ui
of utterance u (extractor.py), and the mean m_u and covariance V_u of its i-vector, the E-step sums up

    Y_i = sum_u f_ui m_u^T,   R_i = sum_u g_ui (V_u + m_u m_u^T),   and of all utterances' i-vectors the mean and the scatter;

the scatter C_i of the features under Gaussian i's posteriors does not change. The M-step is, one after the other:

* M_i = Y_i R_i^-1. The step is made in a space where R_i has a unit diagonal, and eigenvalues of it below 10^-4 of the largest are raised,
  so that directions about which the data say little move less.
* S_i = (C_i - Y_i M_i^T - M_i Y_i^T + M_i R_i M_i^T) / g_i, at least a tenth of the average covariance in every direction.
* The prior: the i-vectors' space is transformed so that they have covariance 1 and a mean along the first axis, whose length is the new
  prior offset ("minimum divergence"). Of the rotations that leave this as it is, that is taken which makes the weighted sum of U_i
  diagonal, the largest first, in the other dimensions.

The log-likelihood of the features with these posteriors, integrated over the i-vectors, is

    sum_i g_i (log w_i - (D log 2 pi + log |S_i|) / 2) - tr(S_i^-1 C_i) / 2  +  sum_u (l_u . m_u - p^2 - log |Q_u|) / 2,

and rises with each iteration, but for the raised eigenvalues. Utterances are taken some at a time, in threads, and added in their order:
the result is the same for any number of threads. Source: Kaldi's ivector/ivector-extractor.cc (IvectorExtractorStats).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np

from pykaldist.errors import UserError
from pykaldist.hmm.alignments.corpus import Corpus, block_task
from pykaldist.hmm.gmm.engine import Engine, sum_pieces
from pykaldist.hmm.gmm.gmm import LOG_2PI
from pykaldist.hmm.ivector.extractor import IvectorExtractor, packed, unpacked
from pykaldist.hmm.ivector.posteriors import Posteriors
from pykaldist.io.scratch import slices
from pykaldist.progress import Progress

MIN_COUNT = 100.0  # a Gaussian with fewer frames stays as it is
_VARIANCE_FLOOR_FACTOR = 0.1
_MOST_CONDITION = 1e4
_BATCH_BYTES = 2**25  # of the sums of the utterances that are taken together
_BATCH_FRAMES = 2**16  # of these utterances
_BLOCK = 8192  # frames at a time in the scatter


@dataclass
class TrainingFrames:
    """The frames of some utterances: u has the rows `offsets[u]:offsets[u + 1]` of `feats` (N, D) float32 and of the posteriors."""

    feats: np.ndarray
    offsets: np.ndarray
    posteriors: Posteriors

    def sums(self, first: int, end: int, num_gauss: int) -> tuple[np.ndarray, np.ndarray]:
        """The occupancies (B, I) and sums of features (B, I, D), float64, of utterances `first` to `end` - 1."""
        from scipy.sparse import csr_array  # for which no help should wait

        rows = slice(int(self.offsets[first]), int(self.offsets[end]))
        gauss, weight = self.posteriors.gauss[rows], self.posteriors.weight[rows].astype(np.float64)
        count, most = gauss.shape
        utt = np.repeat(np.arange(end - first), np.diff(self.offsets[first:end + 1]))
        cells = (utt[:, None] * num_gauss + gauss).ravel()
        shape = ((end - first) * num_gauss, count)
        by_cell = csr_array((weight.ravel(), cells, np.arange(count + 1) * most), shape=shape[::-1]).T
        sums = by_cell @ self.feats[rows].astype(np.float64)
        occupancy = np.bincount(cells, weight.ravel(), minlength=shape[0])
        return occupancy.reshape(-1, num_gauss), sums.reshape(end - first, num_gauss, -1)

    def scatter(self, num_gauss: int) -> Scatter:
        """The scatter of all frames."""
        from scipy.sparse import csr_array  # for which no help should wait

        dim = self.feats.shape[1]
        occupancy, result = np.zeros(num_gauss), np.zeros((num_gauss, dim * (dim + 1) // 2))
        rows, columns = np.tril_indices(dim)
        for part in slices(len(self.feats), _BLOCK):
            x, gauss = self.feats[part].astype(np.float64), self.posteriors.gauss[part]
            weight = self.posteriors.weight[part].astype(np.float64)
            by_gauss = csr_array((weight.ravel(), gauss.ravel(), np.arange(len(x) + 1) * gauss.shape[1]), shape=(len(x), num_gauss)).T
            result += by_gauss @ (x[:, rows] * x[:, columns])
            occupancy += np.bincount(gauss.ravel(), weight.ravel(), minlength=num_gauss)
        return Scatter(occupancy, result)

    def batches(self, extractor: IvectorExtractor) -> list[tuple[int, int]]:
        """The first and the end utterance of batches of so many of them, and of so many frames, as memory shall hold."""
        most, bounds, count = max(1, _BATCH_BYTES // (8 * extractor.num_gauss * extractor.feat_dim)), [0], len(self.offsets) - 1
        while (first := bounds[-1]) < count:
            frames = int(np.searchsorted(self.offsets, self.offsets[first] + _BATCH_FRAMES, "right")) - 1
            bounds.append(min(count, first + most, max(first + 1, frames)))
        return list(itertools.pairwise(bounds))


@dataclass
class Scatter:
    """The occupancies (I,) of Gaussians, and their scatters about 0 of the features, packed (I, D (D + 1) / 2), float64."""

    occupancy: np.ndarray
    packed: np.ndarray

    def __add__(self, other: Scatter) -> Scatter:
        return Scatter(self.occupancy + other.occupancy, self.packed + other.packed)


@dataclass
class IvectorStats:
    """What the E-step sums up (float64), by the names of the head of this file; `quadratic` R is packed (I, K (K + 1) / 2)."""

    linear: np.ndarray
    quadratic: np.ndarray
    ivector_sum: np.ndarray
    ivector_scatter: np.ndarray
    num_ivectors: int
    log_likelihood: float

    def __add__(self, other: IvectorStats) -> IvectorStats:
        return IvectorStats(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))


class ExtractorTraining:
    """The training of an extractor on the frames of a corpus: its features (N, D) float32, and their posteriors (N, n), as `Posteriors`."""

    def __init__(self, corpus: Corpus, feats: np.ndarray, gauss: np.ndarray, weight: np.ndarray, num_gauss: int, engine: Engine) -> None:
        self._corpus, self._rows, self._engine = corpus, (feats, gauss, weight), engine
        found: Scatter = corpus.total(_scatter, engine, *self._rows, num_gauss=num_gauss)
        self.occupancy, self._scatter = found.occupancy, unpacked(found.packed, feats.shape[1])
        if not (self.occupancy >= MIN_COUNT).any():
            raise UserError(f"no Gaussian of the UBM has {MIN_COUNT:g} frames (after --posterior-scale) to train an i-vector extractor on, "
                            f"the most is {self.occupancy.max():.1f}; give more data, or a UBM with fewer Gaussians.")

    def run(self, extractor: IvectorExtractor, num_iters: int, log: Callable[[str], None] = print) -> IvectorExtractor:
        """Train for `num_iters` iterations."""
        starved = int((self.occupancy < MIN_COUNT).sum())
        if starved:
            log(f"WARNING: {starved} of {extractor.num_gauss} Gaussians have fewer than {MIN_COUNT:g} frames (after --posterior-scale) and "
                "stay as they are in the UBM; give more data, or a UBM with fewer Gaussians.")
        for iteration in range(num_iters):
            stats = self.e_step(extractor)
            log(f"iteration {iteration}: log-likelihood {stats.log_likelihood / self.occupancy.sum():.4f} a frame, {stats.num_ivectors} "
                f"i-vectors, prior offset {extractor.prior_offset:.3f}")
            extractor = self.m_step(extractor, stats)
        return extractor

    def e_step(self, extractor: IvectorExtractor) -> IvectorStats:
        """Sum up the statistics, and the log-likelihood of all frames."""
        with Progress("i-vectors of the training data", len(self._corpus), "utt") as bar:
            total: IvectorStats = self._corpus.total(_e_step, self._engine, *self._rows, bar=bar, extractor=extractor)
        log_dets = np.linalg.slogdet(extractor.precisions)[1]
        total.log_likelihood += float(
            self.occupancy @ (np.log(extractor.weights) + 0.5 * (log_dets - extractor.feat_dim * LOG_2PI))
            - 0.5 * np.vdot(extractor.precisions, self._scatter) - 0.5 * extractor.prior_offset**2 * total.num_ivectors)
        return total

    def m_step(self, extractor: IvectorExtractor, stats: IvectorStats) -> IvectorExtractor:
        """The extractor of these statistics."""
        fed = self.occupancy >= MIN_COUNT
        quadratic = unpacked(stats.quadratic[fed], extractor.dim)
        projections, precisions = extractor.projections.copy(), extractor.precisions.copy()
        projections[fed] = _solved(projections[fed], stats.linear[fed], quadratic)
        precisions[fed] = self._precisions(projections[fed], stats.linear[fed], quadratic, fed)
        return _with_prior(IvectorExtractor(extractor.weights, projections, precisions, extractor.prior_offset), stats)

    def _precisions(self, projections: np.ndarray, linear: np.ndarray, quadratic: np.ndarray, fed: np.ndarray) -> np.ndarray:
        """The inverse covariances (I, D, D) of the Gaussians that are `fed`."""
        cross = linear @ projections.transpose(0, 2, 1)
        scatter = self._scatter[fed] - cross - cross.transpose(0, 2, 1) + projections @ quadratic @ projections.transpose(0, 2, 1)
        occupancy = self.occupancy[fed]
        floor = _VARIANCE_FLOOR_FACTOR / occupancy.sum() * scatter.sum(0)
        values, vectors = np.linalg.eigh(floor)
        floor = (vectors * np.maximum(values, 1e-4 * values.max())) @ vectors.T
        return np.linalg.inv(floored(scatter / occupancy[:, None, None], floor))


@block_task(feats=False)
def _scatter(part: Corpus, engine: Engine, feats: np.ndarray, gauss: np.ndarray, weight: np.ndarray, num_gauss: int) -> Scatter:
    return TrainingFrames(feats, part.offsets, Posteriors(gauss, weight)).scatter(num_gauss)


@block_task(feats=False)
def _e_step(part: Corpus, engine: Engine, feats: np.ndarray, gauss: np.ndarray, weight: np.ndarray, extractor: IvectorExtractor,
            bar: Progress | None = None) -> IvectorStats:
    frames = TrainingFrames(feats, part.offsets, Posteriors(gauss, weight))
    extractor.linear_maps, extractor.quadratic_maps  # noqa: B018  # made here, before the threads ask for them
    total: IvectorStats = sum_pieces(functools.partial(_of_batch, frames, extractor), frames.batches(extractor), engine.threads)
    if bar is not None:
        bar.update(len(part))
    return total


def _of_batch(frames: TrainingFrames, extractor: IvectorExtractor, first: int, end: int) -> IvectorStats:
    """The statistics of some utterances; of the log-likelihood what depends on their i-vectors."""
    dim, num_gauss = extractor.dim, extractor.num_gauss
    occupancy, sums = frames.sums(first, end, num_gauss)
    flat = sums.reshape(end - first, -1)
    linear = flat @ extractor.linear_maps.reshape(-1, dim)
    linear[:, 0] += extractor.prior_offset
    precision = unpacked(occupancy @ extractor.quadratic_maps, dim) + np.eye(dim)
    covariance = np.linalg.inv(precision)
    mean = np.einsum("ukl,ul->uk", covariance, linear)
    moments = covariance + mean[:, :, None] * mean[:, None, :]
    log_likelihood = 0.5 * float(np.vdot(linear, mean) - np.linalg.slogdet(precision)[1].sum())
    return IvectorStats((flat.T @ mean).reshape(num_gauss, extractor.feat_dim, dim), occupancy.T @ packed(moments), mean.sum(0),
                        moments.sum(0), end - first, log_likelihood)


def floored(matrices: np.ndarray, floor: np.ndarray) -> np.ndarray:
    """Symmetric matrices (I, D, D) raised to be at least the positive definite `floor` (D, D) in every direction.

    In the space where the floor is 1, eigenvalues below 1 become 1.
    """
    root = np.linalg.cholesky(floor)
    whiten = np.linalg.inv(root)
    values, vectors = np.linalg.eigh(whiten @ matrices @ whiten.T)
    back = root @ vectors
    return (back * np.maximum(values, 1.0)[:, None, :]) @ back.transpose(0, 2, 1)


def _solved(projections: np.ndarray, linear: np.ndarray, quadratic: np.ndarray) -> np.ndarray:
    """The M (I, D, K) for which M R = Y, by a step from the old ones; R with its small eigenvalues raised."""
    scale = 1.0 / np.sqrt(np.einsum("ikk->ik", quadratic))
    values, vectors = np.linalg.eigh(quadratic * scale[:, :, None] * scale[:, None, :])
    values = np.maximum(values, values[:, -1:] / _MOST_CONDITION)
    missing = (linear - projections @ quadratic) * scale[:, None, :]
    step = ((missing @ vectors) / values[:, None, :]) @ vectors.transpose(0, 2, 1)
    return projections + step * scale[:, None, :]


def _with_prior(extractor: IvectorExtractor, stats: IvectorStats) -> IvectorExtractor:
    """The same model in the space where the i-vectors have covariance 1 and a mean along the first axis."""
    mean = stats.ivector_sum / stats.num_ivectors
    covariance = stats.ivector_scatter / stats.num_ivectors - np.outer(mean, mean)
    values, vectors = np.linalg.eigh(covariance)
    transform = vectors.T / np.sqrt(np.maximum(values, 1e-7))[:, None]
    centre = transform @ mean
    if not centre.any():
        raise UserError("the i-vectors of the training data have the mean 0; look at the features.")
    mirror = centre / np.linalg.norm(centre)  # the reflection that turns the mean to the first axis
    mirror[0] -= 1.0
    if (length := np.linalg.norm(mirror)) > 1e-12:
        transform -= 2.0 * np.outer(mirror / length, (mirror / length) @ transform)
    average = unpacked(extractor.weights @ extractor.quadratic_maps, extractor.dim)
    others = np.linalg.inv(transform)[:, 1:]
    transform[1:] = np.linalg.eigh(others.T @ average @ others)[1][:, ::-1].T @ transform[1:]
    return IvectorExtractor(extractor.weights, extractor.projections @ np.linalg.inv(transform), extractor.precisions,
                            float((transform @ mean)[0]))


def frame_offsets(lengths: list[int]) -> np.ndarray:
    """The first row of each utterance, and the number of rows behind the last."""
    return np.array([0, *itertools.accumulate(lengths)], np.int64)
