"""i-vectors of what was heard so far, one every few frames, as a decoder has them that runs beside the speaker.

i-vector j of an utterance is that of the statistics (extractor.py) of its frames 0 to j `ivector_period`, and of the speaker's earlier
utterances. It is found by a few steps of conjugate gradients from the one before, the first from the prior's mean. The prior counts more
where the occupancies come to more than `max_count`: by their sum over max_count. What an utterance leaves for the speaker's next are its
statistics up to its last i-vector, and its CMVN statistics, both scaled down to `max_remembered_frames`. The prior's mean is subtracted
from what is written. Source: Kaldi's online2/online-ivector-feature.cc, as ivector-extract-online2 runs it, and LinearCgd in
matrix/optimization.cc.

An i-vector's statistics are those of the few Gaussians of its frames. Each Gaussian's are summed up first and then multiplied once by its
maps U_i and S_i^-1 M_i in float32, by several maps or rows of a map in one pass over the result, since most of the time goes into reading
and writing. The sums over time are float64.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from pykaldist.errors import UserError
from pykaldist.feats.cmvn import cmvn_stats
from pykaldist.hmm.gmm.gmm import AmDiagGmm
from pykaldist.hmm.ivector.extractor import IvectorExtractor
from pykaldist.hmm.ivector.features import IvectorFeatures
from pykaldist.hmm.ivector.posteriors import PosteriorOptions, Posteriors, frame_posteriors
from pykaldist.hmm.sgmm.full_gmm import FullGmm
from pykaldist.kernels import kernel
from pykaldist.options import option

NORMALISED_INPUT = "online_cmvn_iextractor"  # a file beside an extractor that says that it, too, sees features with online CMVN
_ENOUGH = 1e-12  # squared residual; an i-vector is 1e-6 near to the solution, for no eigenvalue of the matrix is below the prior's, 1
_FASTMATH = {"reassoc", "contract"}  # sums in any order, but infinities and NaN are what they are


@dataclass
class OnlineOptions:
    """Options of the extraction, by Kaldi's names."""

    ivector_period: int = option(10, "frames from one i-vector to the next")
    max_count: float = option(0.0, "count (frames times --posterior-scale) above which the prior counts more; 0: never")
    num_cg_iters: int = option(15, "steps of conjugate gradients for an i-vector")
    max_remembered_frames: float = option(1000.0, "most frames of earlier utterances of the speaker")

    def __post_init__(self) -> None:
        if self.ivector_period < 1 or self.num_cg_iters < 1:
            raise UserError(f"--ivector-period and --num-cg-iters must be at least 1, found {self.ivector_period} and {self.num_cg_iters}.")
        if self.max_count < 0 or self.max_remembered_frames < 0:
            raise UserError(f"--max-count and --max-remembered-frames must not be negative, found {self.max_count:g} and "
                            f"{self.max_remembered_frames:g}.")


class OnlineStats:
    """The statistics of an i-vector: `linear` l (K,), `quadratic` Q packed (K (K + 1) / 2,), and the occupancies' sum `count` (1,)."""

    def __init__(self, dim: int, prior_offset: float, max_count: float) -> None:
        self._prior_offset, self._max_count = prior_offset, max_count
        self.linear, self.quadratic, self.count = np.zeros(dim), np.zeros(dim * (dim + 1) // 2), np.zeros(1)
        self._diagonal = np.cumsum(np.arange(1, dim + 1)) - 1
        self._add_prior(1.0)

    def _add_prior(self, weight: float) -> None:
        self.linear[0] += self._prior_offset * weight
        self.quadratic[self._diagonal] += weight

    def _prior_scale(self) -> float:
        """How much the prior counts."""
        return max(float(self.count[0]), self._max_count) / self._max_count if self._max_count else 1.0

    def limit(self, most: float) -> None:
        """Scale down what was heard to a count of `most`."""
        if self.count[0] > most:
            scale, before = most / float(self.count[0]), self._prior_scale()
            self.linear *= scale
            self.quadratic *= scale
            self.count *= scale
            self._add_prior(self._prior_scale() - scale * before)


@dataclass
class SpeakerState:
    """What is known of a speaker from earlier utterances: the i-vector's statistics, and CMVN statistics (None: nothing)."""

    stats: OnlineStats
    cmvn: np.ndarray | None = None


@dataclass
class OnlineExtractor:
    """The extraction of i-vectors; `normalised_input`: the extractor, too, sees features with online CMVN."""

    features: IvectorFeatures
    ubm: AmDiagGmm | FullGmm
    extractor: IvectorExtractor
    options: OnlineOptions = field(default_factory=OnlineOptions)
    posteriors: PosteriorOptions = field(default_factory=PosteriorOptions)
    normalised_input: bool = False

    def new_speaker(self) -> SpeakerState:
        """The state of a speaker who was not heard yet."""
        return SpeakerState(OnlineStats(self.extractor.dim, self.extractor.prior_offset, self.options.max_count))

    def __call__(self, x: np.ndarray, speaker: SpeakerState, where: str = "features",
                 frame_weights: np.ndarray | None = None) -> np.ndarray:
        """The i-vectors (frames / period, rounded up; K) float32 of an utterance with the stored features `x`; changes the speaker's state.

        `frame_weights` (T,), such as decisions for speech, weigh the frames in the statistics. `where` names the utterance in errors.
        """
        normalised = self.features.normalised(x, where, speaker.cmvn)
        feats = normalised if self.normalised_input else self.features.spliced(x, where)
        posteriors = frame_posteriors(self.ubm, normalised, self.posteriors, frame_weights)
        result = self.of_statistics(feats, posteriors, speaker.stats)
        self.remember(speaker, cmvn_stats([x]))
        return result

    def remember(self, speaker: SpeakerState, own: np.ndarray) -> None:
        """End an utterance of the speaker with the CMVN statistics `own`: what it leaves for the next one."""
        speaker.stats.limit(self.options.max_remembered_frames * self.posteriors.posterior_scale)
        speaker.cmvn = own if speaker.cmvn is None else speaker.cmvn + own
        if speaker.cmvn[0, -1] > self.options.max_remembered_frames:
            speaker.cmvn *= self.options.max_remembered_frames / speaker.cmvn[0, -1]

    def of_statistics(self, feats: np.ndarray, posteriors: Posteriors, stats: OnlineStats) -> np.ndarray:
        """The i-vectors of frames `feats` (T, D) with these posteriors, added to `stats` up to the last i-vector's."""
        return self._estimated(feats, posteriors, stats, self.options.ivector_period)

    def after(self, feats: np.ndarray, posteriors: Posteriors, stats: OnlineStats, before: np.ndarray) -> np.ndarray:
        """The i-vector (1, K) behind the last of the frames `feats`, all of which are added to `stats`; it is found from the one before."""
        return self._estimated(feats, posteriors, stats, max(1, len(feats) - 1), before[0])[-1:]

    def _estimated(self, feats: np.ndarray, posteriors: Posteriors, stats: OnlineStats, period: int,
                   before: np.ndarray | None = None) -> np.ndarray:
        result = np.zeros((-(-len(feats) // period), self.extractor.dim))
        first = np.zeros(self.extractor.dim) if before is None else before.astype(np.float64)
        first[0] += self.extractor.prior_offset
        _estimate(feats, posteriors.gauss, posteriors.weight, *self._maps, self.extractor.prior_offset, self.options.max_count, period,
                  self.options.num_cg_iters, stats.linear, stats.quadratic, stats.count, first, result)
        result[:, 0] -= self.extractor.prior_offset
        return result.astype(np.float32)

    @cached_property
    def _maps(self) -> tuple[np.ndarray, np.ndarray]:
        """The extractor's maps in float32: half the memory to read."""
        return self.extractor.single_precision_maps()


@kernel(nogil=True, fastmath=_FASTMATH)
def _estimate(feats: np.ndarray, gauss: np.ndarray, weight: np.ndarray, linear_maps: np.ndarray, quadratic_maps: np.ndarray,
              prior_offset: float, max_count: float, period: int, num_cg_iters: int, linear: np.ndarray, quadratic: np.ndarray,
              count: np.ndarray, ivector: np.ndarray, ivectors: np.ndarray) -> None:
    """Add the frames to the statistics, and write an i-vector to `ivectors` after frames 0, `period`, 2 `period`, ...

    `ivector` is the one before the first, and the last one afterwards.
    """
    dim = len(linear)
    own_linear, own_quadratic = np.empty(dim, np.float32), np.empty(len(quadratic), np.float32)
    part_of = np.full(len(linear_maps), -1)
    for number in range(len(ivectors)):
        frames = slice(max(0, (number - 1) * period + 1), number * period + 1)
        total = _statistics(feats[frames], gauss[frames], weight[frames], linear_maps, quadratic_maps, part_of, own_linear, own_quadratic)
        for k in range(dim):
            linear[k] += own_linear[k]
        for k in range(len(quadratic)):
            quadratic[k] += own_quadratic[k]
        if max_count > 0.0:
            change = (max(count[0] + total, max_count) - max(count[0], max_count)) / max_count
            linear[0] += prior_offset * change
            for k in range(dim):
                quadratic[k * (k + 3) // 2] += change
        count[0] += total
        if count[0] > 0.0:
            if ivector[0] == 0.0:
                ivector[0] = prior_offset
            _solve(quadratic, linear, ivector, num_cg_iters)
        else:
            ivector[:] = 0.0
            ivector[0] = prior_offset
        ivectors[number] = ivector


@kernel(nogil=True, fastmath=_FASTMATH)
def _statistics(feats: np.ndarray, gauss: np.ndarray, weight: np.ndarray, linear_maps: np.ndarray, quadratic_maps: np.ndarray,
                part_of: np.ndarray, linear: np.ndarray, quadratic: np.ndarray) -> float:
    """Write to `linear` and `quadratic` what frames add to the statistics; returns what they add to the count.

    `part_of` (I,) is -1 everywhere, before and after.
    """
    num_gauss, feat_dim, dim = linear_maps.shape
    most = min(weight.size, num_gauss)  # parts: the frames of one Gaussian
    sums, occupancy, gaussian = np.empty((most, feat_dim), np.float32), np.zeros(most, np.float32), np.empty(most, np.int64)
    parts, total = 0, 0.0
    for t in range(len(feats)):
        for n in range(gauss.shape[1]):
            w, g = weight[t, n], gauss[t, n]
            if w == 0.0:
                continue
            part = part_of[g]
            if part < 0:
                part = part_of[g] = parts
                gaussian[part], sums[part] = g, 0.0
                parts += 1
            occupancy[part] += w
            total += w
            for d in range(feat_dim):
                sums[part, d] += w * feats[t, d]
    part_of[gaussian[:parts]] = -1
    linear[:], quadratic[:] = 0.0, 0.0
    order = np.argsort(gaussian[:parts], kind="mergesort")
    for begin in range(0, parts - 3, 4):
        some = order[begin:begin + 4]
        w, maps = occupancy[some], gaussian[some]
        first, second, third, fourth = quadratic_maps[maps[0]], quadratic_maps[maps[1]], quadratic_maps[maps[2]], quadratic_maps[maps[3]]
        for k in range(len(quadratic)):
            quadratic[k] = quadratic[k] + w[0] * first[k] + w[1] * second[k] + w[2] * third[k] + w[3] * fourth[k]
    for part in order[parts // 4 * 4:]:
        for k in range(len(quadratic)):
            quadratic[k] += occupancy[part] * quadratic_maps[gaussian[part], k]
    for part in order:
        s, rows = sums[part], linear_maps[gaussian[part]]
        for d in range(0, feat_dim - 3, 4):
            for k in range(dim):
                linear[k] = (linear[k] + s[d] * rows[d, k] + s[d + 1] * rows[d + 1, k] + s[d + 2] * rows[d + 2, k]
                             + s[d + 3] * rows[d + 3, k])
        for d in range(feat_dim // 4 * 4, feat_dim):
            for k in range(dim):
                linear[k] += s[d] * rows[d, k]
    return total


@kernel(nogil=True, fastmath=_FASTMATH)
def _solve(quadratic: np.ndarray, target: np.ndarray, x: np.ndarray, steps: int) -> None:
    """Take `steps` steps of conjugate gradients from x to the solution of Q x = `target`, with the matrix Q packed in `quadratic`.

    The products of the steps are float32, which is as if Q were rounded where it maps what x is still away from the solution.
    Where the residual has grown by them, x becomes the exact solution.
    """
    dim = len(x)
    matrix, residual = np.empty((dim, dim), np.float32), np.empty(dim)
    direction, product = np.empty(dim, np.float32), np.empty(dim, np.float32)
    place = 0
    for k in range(dim):
        row = quadratic[place:place + k + 1]
        for j in range(k + 1):
            matrix[k, j] = row[j]
        for j in range(k):
            matrix[j, k] = row[j]
        place += k + 1
    start = now = checked = _residual(quadratic, target, x, residual)
    for k in range(dim):
        direction[k] = -residual[k]
    for _ in range(min(steps, dim + 5)):
        np.dot(matrix, direction, product)
        curvature, slope = 0.0, 0.0
        for k in range(dim):
            curvature += direction[k] * product[k]
            slope += direction[k] * residual[k]
        if curvature <= 0.0:
            break
        alpha, following = -slope / curvature, 0.0
        for k in range(dim):
            x[k] += alpha * direction[k]
            residual[k] += alpha * product[k]
            following += residual[k] * residual[k]
        if following < 1e-4 * checked or following > 1e4 * checked:  # computed anew, for rounding has its part in it by now
            following = checked = _residual(quadratic, target, x, residual)
        if following <= _ENOUGH:
            break
        for k in range(dim):
            direction[k] = following / now * direction[k] - residual[k]
        now = following
    if now > start and now > start + 1e-10 * np.dot(target, target):
        x[:] = np.linalg.solve(matrix.astype(np.float64), target)


@kernel(nogil=True, fastmath=_FASTMATH)
def _residual(quadratic: np.ndarray, target: np.ndarray, x: np.ndarray, residual: np.ndarray) -> float:
    """Write Q x - `target` to `residual`, with Q packed in `quadratic`; returns its squared norm."""
    place = 0
    for k in range(len(x)):
        row, own, total = quadratic[place:place + k], x[k], 0.0
        for j in range(k):
            total += row[j] * x[j]
            residual[j] += row[j] * own
        residual[k] = total + quadratic[place + k] * own - target[k]
        place += k + 1
    return np.dot(residual, residual)
