"""Gaussian mixtures with diagonal covariances, one for each pdf, packed into flat arrays.

With precisions v = 1/sigma^2 and m = mu v, a Gaussian of weight w has log-density
    log w N(x) = gconst + m . x - 1/2 v . x^2,     gconst = log w - 1/2 (D log 2 pi - sum log v + sum m^2 / v),
so the scores of all Gaussians are one matrix product [x, -x^2/2] [m, v]^T, and a pdf's log-likelihood is the logarithm of the sum
of the exponentials over its segment of the columns. EM needs the same scores; its M-step, the removal of starved Gaussians and
the splitting of the heaviest are those of Kaldi's gmm/mle-diag-gmm and gmm/diag-gmm.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from pykaldist.feats.pipeline import check_dim
from pykaldist.hmm.gmm.mixture_sizes import MATRICES, begin_mixture, next_part
from pykaldist.hmm.tree.gauss_stats import VARIANCE_FLOOR
from pykaldist.io.kaldi import KaldiReader, KaldiWriter
from pykaldist.kernels import kernel

LOG_2PI = float(np.log(2 * np.pi))
_BLOCK = 4096  # frames at a time in accumulation: float32 inside a block, float64 between blocks
_FASTMATH = {"reassoc", "contract"}  # sums in any order, but infinities and NaN are what they are
_Mixture = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]


@dataclass
class GmmStats:
    """Sufficient statistics (float64): occupancies (G,), sums of x and of x^2 (G, D)."""

    occupancy: np.ndarray
    x: np.ndarray
    x2: np.ndarray

    def __add__(self, other: GmmStats) -> GmmStats:
        return GmmStats(self.occupancy + other.occupancy, self.x + other.x, self.x2 + other.x2)

    def add(self, other: GmmStats) -> None:
        """Add other statistics to these, in place."""
        self.occupancy += other.occupancy
        self.x += other.x
        self.x2 += other.x2


class AmDiagGmm:
    """The Gaussian mixtures of all pdfs: Gaussians `offsets[p]` to `offsets[p + 1]` belong to pdf p.

    `weights` (G,), `means_invvars` (G, D), `inv_vars` (G, D), `gconsts` (G,), all float32. Without `gconsts` they are computed.
    `projection` (G, 2 D) is [m, v].
    """

    def __init__(self, offsets: np.ndarray, weights: np.ndarray, means_invvars: np.ndarray, inv_vars: np.ndarray,
                 gconsts: np.ndarray | None = None) -> None:
        self.offsets = np.ascontiguousarray(offsets, dtype=np.int32)
        self.weights = np.ascontiguousarray(weights, dtype=np.float32)
        self.means_invvars = np.ascontiguousarray(means_invvars, dtype=np.float32)
        self.inv_vars = np.ascontiguousarray(inv_vars, dtype=np.float32)
        if gconsts is None:
            m, v = self.means_invvars.astype(np.float64), self.inv_vars.astype(np.float64)
            with np.errstate(divide="ignore"):
                gconsts = np.log(self.weights) - 0.5 * (self.dim * LOG_2PI - np.log(v).sum(1) + (m * m / v).sum(1))
        self.gconsts = np.ascontiguousarray(gconsts, dtype=np.float32)
        self.projection = np.concatenate([self.means_invvars, self.inv_vars], axis=1)

    @classmethod
    def flat_start(cls, num_pdfs: int, mean: np.ndarray, variance: np.ndarray) -> AmDiagGmm:
        """Make a model with one Gaussian of this mean and variance (D,) for every pdf."""
        inv_vars = np.tile(1.0 / variance, (num_pdfs, 1))
        return cls(np.arange(num_pdfs + 1), np.ones(num_pdfs), inv_vars * mean, inv_vars)

    @classmethod
    def from_sums(cls, sums: np.ndarray) -> AmDiagGmm:
        """Make a model with one Gaussian for each pdf from rows [count, x, x2] (P, 1 + 2 D), none without frames (gauss_stats.py)."""
        dim = sums.shape[1] // 2
        mean = sums[:, 1:1 + dim] / sums[:, :1]
        inv_vars = 1.0 / np.maximum(sums[:, 1 + dim:] / sums[:, :1] - mean * mean, VARIANCE_FLOOR)
        return cls(np.arange(len(sums) + 1), np.ones(len(sums)), mean * inv_vars, inv_vars)

    @property
    def dim(self) -> int:
        return self.means_invvars.shape[1]

    @property
    def num_pdfs(self) -> int:
        return len(self.offsets) - 1

    @property
    def num_gauss(self) -> int:
        return len(self.weights)

    def loglikes(self, feats: np.ndarray, pdfs: np.ndarray | None = None) -> np.ndarray:
        """Log-likelihoods (T, num_pdfs) float32 of `feats` (T, D) float32, for all pdfs, or for those listed, in that order.

        Raises UserError where the features have another dimension than the model.
        """
        check_dim(self.dim, feats)
        projection, gconsts, offsets = self.projection, self.gconsts, self.offsets
        if pdfs is not None:
            starts, sizes = self.offsets[pdfs], self.offsets[np.asarray(pdfs) + 1] - self.offsets[pdfs]
            offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
            chosen = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], sizes)
            projection, gconsts = projection[chosen], gconsts[chosen]
        scores = _expanded(feats) @ projection.T
        result = np.empty((len(feats), len(offsets) - 1), dtype=np.float32)
        _subtract_segment_max(scores, gconsts, offsets, result)
        np.exp(scores, out=scores)
        _add_log_segment_sum(scores, offsets, result)
        return result

    def scores(self, feats: np.ndarray) -> np.ndarray:
        """Log-densities times weights (T, G) float32 of frames `feats` (T, D) float32 under all Gaussians."""
        check_dim(self.dim, feats)
        result = _expanded(feats) @ self.projection.T
        result += self.gconsts
        return result

    def new_stats(self) -> GmmStats:
        return GmmStats(np.zeros(self.num_gauss), np.zeros((self.num_gauss, self.dim)), np.zeros((self.num_gauss, self.dim)))

    def _posteriors(self, part: slice, x: np.ndarray, weights: np.ndarray | None = None) -> tuple[np.ndarray, float]:
        """The posterior (T, G) of each Gaussian in `part` for expanded frames x (T, 2 D), and the log-likelihood of all of them.

        Both are times the frames' `weights` (T,), where they are given.
        """
        scores = x @ self.projection[part].T
        scores += self.gconsts[part]
        highest = scores.max(axis=1, keepdims=True)
        scores -= highest
        np.exp(scores, out=scores)
        total = scores.sum(axis=1, keepdims=True)
        scores /= total
        if weights is None:
            return scores, float(highest.sum(dtype=np.float64) + np.log(total).sum(dtype=np.float64))
        scores *= weights[:, None].astype(np.float32)
        return scores, float(weights @ (highest + np.log(total))[:, 0])

    def accumulate(self, stats: GmmStats, pdf: int, feats: np.ndarray, other: np.ndarray | None = None,
                   weights: np.ndarray | None = None) -> float:
        """Add frames `feats` (T, D) float32 that are aligned to `pdf` to the statistics; returns their log-likelihood.

        Each counts with its weight (T,), where `weights` are given. With `other` (T, D) these features of the same frames are summed up,
        divided among the Gaussians by the likelihoods of `feats`.
        """
        log_likelihood = 0.0
        part = slice(self.offsets[pdf], self.offsets[pdf + 1])
        for start in range(0, len(feats), _BLOCK):
            x = _expanded(feats[start:start + _BLOCK])
            posteriors, value = self._posteriors(part, x, None if weights is None else weights[start:start + _BLOCK])
            log_likelihood += value
            stats.occupancy[part] += posteriors.sum(axis=0, dtype=np.float64)
            sums = posteriors.T @ (x if other is None else _expanded(other[start:start + _BLOCK]))
            stats.x[part] += sums[:, :self.dim]
            stats.x2[part] -= 2.0 * sums[:, self.dim:]
        return log_likelihood

    def expected_parameters(self, pdf: int, feats: np.ndarray, target: np.ndarray | None = None) -> np.ndarray:
        """The parameters [m, v] of the Gaussians of `pdf`, averaged by their posteriors in each frame of `feats` (T, D): (T, 2 D) float32.

        m = mu / sigma^2, v = 1 / sigma^2. With `target` (G, 2 D) float32 they are these, such as another model's `projection`.
        """
        part = slice(self.offsets[pdf], self.offsets[pdf + 1])
        projection = (self.projection if target is None else target)[part]
        return np.concatenate([self._posteriors(part, _expanded(feats[start:start + _BLOCK]))[0] @ projection
                               for start in range(0, len(feats), _BLOCK)])

    def pdf_occupancy(self, stats: GmmStats) -> np.ndarray:
        """The number of frames of each pdf (float64)."""
        return np.add.reduceat(stats.occupancy, self.offsets[:-1])

    def updated(self, stats: GmmStats, min_gaussian_occupancy: float = 10.0, min_gaussian_weight: float = 1e-5,
                min_variance: float = 0.001, remove_low_count: bool = True) -> AmDiagGmm:
        """The model of maximum likelihood for these statistics (the M-step).

        A Gaussian with less than the least occupancy or weight is removed, its weight shared among the others of the pdf; the last
        one of a pdf stays as it was, and so do all without `remove_low_count`. Variances are floored.
        """
        pdf_of = np.repeat(np.arange(self.num_pdfs), np.diff(self.offsets))
        total = self.pdf_occupancy(stats)[pdf_of]
        share = np.where(total > 0, stats.occupancy / np.maximum(total, 1e-300), 1.0 / np.diff(self.offsets)[pdf_of])
        fed = (stats.occupancy > min_gaussian_occupancy) & (share > min_gaussian_weight)
        keep = fed.copy() if remove_low_count else np.ones_like(fed)
        starved = ~np.logical_or.reduceat(fed, self.offsets[:-1])
        keep[self.offsets[1:][starved] - 1] = True

        occupancy = np.where(fed, stats.occupancy, 1.0)[:, None]
        mean = stats.x / occupancy
        inv_vars = 1.0 / np.maximum(stats.x2 / occupancy - mean * mean, min_variance)
        inv_vars = np.where(fed[:, None], inv_vars, self.inv_vars)
        means_invvars = np.where(fed[:, None], mean * inv_vars, self.means_invvars)

        weights = np.where(fed, share, np.maximum(share, min_gaussian_weight)) * keep
        weights /= np.add.reduceat(weights, self.offsets[:-1])[pdf_of]
        offsets = np.concatenate([[0], np.cumsum(np.add.reduceat(keep.astype(np.int64), self.offsets[:-1]))])
        return AmDiagGmm(offsets, weights[keep], means_invvars[keep], inv_vars[keep])

    def split(self, targets: np.ndarray, rng: np.random.Generator, perturb_factor: float = 0.01) -> AmDiagGmm:
        """Split Gaussians until pdf p has `targets[p]`, always the heaviest.

        Its halves are moved apart by a random vector of `perturb_factor` standard deviations.
        """
        parts = []
        for first, end, target in zip(self.offsets[:-1].tolist(), self.offsets[1:].tolist(), targets.tolist(), strict=True):
            count, new = end - first, max(target, end - first)
            weights, source = np.empty(new, dtype=np.float32), np.empty(new, dtype=np.int64)
            means = np.empty((new, self.dim), dtype=np.float32)
            weights[:count], source[:count] = self.weights[first:end], np.arange(first, end)
            means[:count] = self.means_invvars[first:end]
            for added in range(count, new):
                heaviest = int(weights[:added].argmax())
                weights[heaviest] /= 2
                # the mean is stored times the precision, so a standard deviation is the root of the precision
                shift = perturb_factor * rng.standard_normal(self.dim) * np.sqrt(self.inv_vars[source[heaviest]])
                weights[added], source[added] = weights[heaviest], source[heaviest]
                means[added] = means[heaviest] + shift
                means[heaviest] -= shift
            parts.append((weights, means, source))
        sizes = [len(weights) for weights, _, _ in parts]
        return AmDiagGmm(np.concatenate([[0], np.cumsum(sizes)]), np.concatenate([p[0] for p in parts]),
                         np.concatenate([p[1] for p in parts]), self.inv_vars[np.concatenate([p[2] for p in parts])])

    def taken(self, pdfs: np.ndarray) -> AmDiagGmm:
        """A model whose pdf i has the mixture of `pdfs[i]`."""
        parts = [np.arange(self.offsets[pdf], self.offsets[pdf + 1]) for pdf in pdfs.tolist()]
        chosen = np.concatenate(parts)
        return AmDiagGmm(np.concatenate([[0], np.cumsum([len(part) for part in parts])]), self.weights[chosen], self.means_invvars[chosen],
                         self.inv_vars[chosen], self.gconsts[chosen])

    def merged(self, targets: np.ndarray) -> AmDiagGmm:
        """Merge Gaussians until pdf p has no more than `targets[p]`, always the two whose union costs least log-likelihood.

        The union has their mean and variance; with weight w and covariance S it costs (w log|S| - w1 log|S1| - w2 log|S2|) / 2, as in
        Kaldi's gmm-mixup --mix-down.
        """
        parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        for first, end, target in zip(self.offsets[:-1].tolist(), self.offsets[1:].tolist(), targets.tolist(), strict=True):
            variance = 1.0 / self.inv_vars[first:end].astype(np.float64)
            mean = self.means_invvars[first:end] * variance
            weight = self.weights[first:end].astype(np.float64)
            sums = np.concatenate([weight[:, None] * mean, weight[:, None] * (variance + mean * mean)], axis=1)
            while len(weight) > max(1, target):
                one, two = _cheapest_pair(weight, sums)
                weight[one] += weight[two]
                sums[one] += sums[two]
                weight, sums = np.delete(weight, two), np.delete(sums, two, axis=0)
            if len(weight) == end - first:
                parts.append((self.weights[first:end], self.means_invvars[first:end], self.inv_vars[first:end]))
            else:
                mean, inv_vars = _moments(weight, sums)
                parts.append((weight, mean * inv_vars, inv_vars))
        offsets = np.concatenate([[0], np.cumsum([len(part[0]) for part in parts])])
        return AmDiagGmm(offsets, *(np.concatenate(column) for column in zip(*parts, strict=True)))

    def with_means_transformed(self, matrix: np.ndarray) -> AmDiagGmm:
        """A copy whose means mu are `matrix` (D, D) times mu; the variances stay (Kaldi's gmm-transform-means)."""
        means = self.means_invvars / self.inv_vars.astype(np.float64) @ matrix.T
        return AmDiagGmm(self.offsets, self.weights, means * self.inv_vars, self.inv_vars)

    def boosted(self, pdfs: np.ndarray, factor: float) -> AmDiagGmm:
        """A copy in which the likelihoods of `pdfs` are multiplied by `factor` (Kaldi's gmm-boost-silence)."""
        scale = np.ones(self.num_pdfs)
        scale[pdfs] = factor
        scale = np.repeat(scale, np.diff(self.offsets))
        return AmDiagGmm(self.offsets, self.weights * scale, self.means_invvars, self.inv_vars, self.gconsts + np.log(scale))

    @classmethod
    def read(cls, reader: KaldiReader) -> AmDiagGmm:
        """Read `<DIMENSION> ... ` and the `<DiagGMM>`s, binary or text."""
        reader.expect("<DIMENSION>")
        dim = reader.integer()
        reader.expect("<NUMPDFS>")
        parts = [_read_mixture(reader, dim) for _ in range(reader.count("pdfs", 20))]
        if not parts:
            raise reader.error("the model has no pdfs")
        return cls._joined(parts)

    @classmethod
    def read_mixture(cls, reader: KaldiReader) -> AmDiagGmm:
        """Read one `<DiagGMM>`, as a model of one pdf."""
        return cls._joined([_read_mixture(reader)])

    @classmethod
    def _joined(cls, parts: list[_Mixture]) -> AmDiagGmm:
        gconsts = [part[3] for part in parts if part[3] is not None]
        return cls(np.concatenate([[0], np.cumsum([len(p[0]) for p in parts])]), np.concatenate([p[0] for p in parts]),
                   np.concatenate([p[1] for p in parts]), np.concatenate([p[2] for p in parts]),
                   np.concatenate(gconsts) if len(gconsts) == len(parts) else None)

    def write(self, writer: KaldiWriter) -> None:
        """Write it as Kaldi does."""
        writer.token("<DIMENSION>")
        writer.integer(self.dim)
        writer.token("<NUMPDFS>")
        writer.integer(self.num_pdfs)
        for pdf in range(self.num_pdfs):
            self.write_mixture(writer, pdf)

    def write_mixture(self, writer: KaldiWriter, pdf: int = 0) -> None:
        """Write the `<DiagGMM>` of one pdf."""
        part = slice(self.offsets[pdf], self.offsets[pdf + 1])
        writer.token("<DiagGMM>")
        writer.end_line()
        writer.token("<GCONSTS>")
        writer.vector(self.gconsts[part])
        writer.token("<WEIGHTS>")
        writer.vector(self.weights[part])
        writer.token("<MEANS_INVVARS>")
        writer.matrix(self.means_invvars[part])
        writer.token("<INV_VARS>")
        writer.matrix(self.inv_vars[part])
        writer.token("</DiagGMM>")
        writer.end_line()


def _read_mixture(reader: KaldiReader, dim: int | None = None) -> _Mixture:
    """The weights, means_invvars, inv_vars and gconsts (None where there are none) of one `<DiagGMM>`, of dimension `dim` if given."""
    begin_mixture(reader)
    arrays = {}
    while token := next_part(reader):
        arrays[token] = reader.matrix() if token in MATRICES else reader.vector()
    weights, means, variances = (arrays.get(k, np.empty(0)) for k in ("<WEIGHTS>", "<MEANS_INVVARS>", "<INV_VARS>"))
    gconsts = arrays.get("<GCONSTS>", np.zeros(len(weights)))
    dim = means.shape[-1] if dim is None else dim
    if not len(weights) or means.shape != (len(weights), dim) or variances.shape != means.shape or len(gconsts) != len(weights):
        raise reader.error(f"expected a mixture of dimension {dim}, found {len(weights)} weights, means "
                           f"{means.shape} and variances {variances.shape}")
    return weights, means, variances, arrays.get("<GCONSTS>")


def split_targets(occupancy: np.ndarray, num_gauss: int, power: float = 0.25, min_count: float = 20.0) -> np.ndarray:
    """The number of Gaussians for each pdf (int64), `num_gauss` in all, in proportion to occupancy^power.

    One is given after another to the pdf with the highest occupancy^power / Gaussians; a pdf gets no more than its occupancy
    feeds with `min_count` each. So the sum is lower where data are few (Kaldi's GetSplitTargets).
    """
    targets = np.ones(len(occupancy), dtype=np.int64)
    share = occupancy**power
    queue = [(-value, pdf) for pdf, value in enumerate(share.tolist())]
    heapq.heapify(queue)
    total = len(targets)
    while queue and total < num_gauss:
        _, pdf = heapq.heappop(queue)
        if (targets[pdf] + 1) * min_count < occupancy[pdf]:
            targets[pdf] += 1
            total += 1
            heapq.heappush(queue, (-float(share[pdf]) / int(targets[pdf]), pdf))
    return targets


def _moments(weight: np.ndarray, sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and inverse variances of Gaussians by weight, and weight times the first two moments (..., 2 D)."""
    dim = sums.shape[-1] // 2
    mean = sums[..., :dim] / weight[..., None]
    return mean, 1.0 / (sums[..., dim:] / weight[..., None] - mean * mean)


def _cheapest_pair(weight: np.ndarray, sums: np.ndarray) -> tuple[int, int]:
    """The two Gaussians whose union costs least log-likelihood, the lower number first."""
    def log_volume(weight: np.ndarray, sums: np.ndarray) -> np.ndarray:
        return -weight * np.log(_moments(weight, sums)[1]).sum(-1)

    one, two = np.triu_indices(len(weight), 1)
    single = log_volume(weight, sums)
    best = int(np.argmin(log_volume(weight[one] + weight[two], sums[one] + sums[two]) - single[one] - single[two]))
    return int(one[best]), int(two[best])


def _expanded(feats: np.ndarray) -> np.ndarray:
    """[x, -x^2/2]: frames with the terms of their squares, (T, 2 D) float32."""
    dim = feats.shape[1]
    x = np.empty((len(feats), 2 * dim), dtype=np.float32)
    x[:, :dim] = feats
    np.multiply(feats, -0.5 * feats, out=x[:, dim:])
    return x


@kernel(nogil=True, fastmath=_FASTMATH)
def _subtract_segment_max(scores: np.ndarray, gconsts: np.ndarray, offsets: np.ndarray, result: np.ndarray) -> None:
    for t in range(scores.shape[0]):
        row = scores[t]
        for p in range(len(offsets) - 1):
            highest = np.float32(-np.inf)
            for g in range(offsets[p], offsets[p + 1]):
                row[g] += gconsts[g]
                highest = max(highest, row[g])
            for g in range(offsets[p], offsets[p + 1]):
                row[g] -= highest
            result[t, p] = highest


@kernel(nogil=True, fastmath=_FASTMATH)
def _add_log_segment_sum(exponentials: np.ndarray, offsets: np.ndarray, result: np.ndarray) -> None:
    for t in range(exponentials.shape[0]):
        for p in range(len(offsets) - 1):
            total = np.float32(0.0)
            for g in range(offsets[p], offsets[p + 1]):
                total += exponentials[t, g]
            result[t, p] += np.log(total)
