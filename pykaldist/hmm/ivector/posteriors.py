"""Which Gaussians of the UBM a frame belongs to: its few highest posteriors.

The scores of all Gaussians of a UBM with diagonal covariances are one matrix product; one with full covariances scores the 50 Gaussians
that are likeliest by their diagonals. What is kept of a frame is Kaldi's VectorToPosteriorEntry (src/hmm/posterior.cc): the
`num_gselect` likeliest Gaussians; of these, those whose posterior among them is at least `min_post`, and always the first; renormalised.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from pykaldist.errors import UserError
from pykaldist.hmm.gmm.gmm import AmDiagGmm
from pykaldist.hmm.sgmm.full_gmm import FullGmm, GaussianSelector
from pykaldist.kernels import kernel
from pykaldist.options import option

_BLOCK = 4096  # frames at a time
_CANDIDATES = 50  # Gaussians of a UBM with full covariances that a frame is scored against
_MOST_MIN_POST = 0.99  # above it only the likeliest Gaussian can be left


@dataclass
class PosteriorOptions:
    """Options of a frame's posteriors, by Kaldi's names."""

    num_gselect: int = option(5, "most Gaussians of a frame")
    min_post: float = option(0.025, "posteriors below it are left out")
    posterior_scale: float = option(0.1, "scale of the posteriors, for frames beside each other say the same")

    def __post_init__(self) -> None:
        if self.num_gselect < 1:
            raise UserError(f"--num-gselect must be at least 1, found {self.num_gselect}.")
        if not 0 <= self.min_post < 0.5:
            raise UserError(f"--min-post must be at least 0 and below 0.5, found {self.min_post:g}.")
        if not 0 < self.posterior_scale <= 1:
            raise UserError(f"--posterior-scale must be above 0 and at most 1, found {self.posterior_scale:g}.")


@dataclass
class Posteriors:
    """The posteriors of T frames: `gauss` (T, n) int32, numbers of Gaussians; `weight` (T, n) float32, 0 where a frame has fewer than n."""

    gauss: np.ndarray
    weight: np.ndarray


@functools.lru_cache(maxsize=1)
def _selector(ubm: FullGmm, count: int) -> GaussianSelector:
    return GaussianSelector(ubm, ubm.diagonal(), count, max(_CANDIDATES, count))


def frame_posteriors(ubm: AmDiagGmm | FullGmm, feats: np.ndarray, options: PosteriorOptions,
                     frame_weights: np.ndarray | None = None) -> Posteriors:
    """The pruned posteriors of frames (T, D) float32, scaled; times `frame_weights` (T,) where they are given.

    A light frame has fewer Gaussians: what is left out of it is what has less than `min_post` after the weight. Raises UserError where the
    features have another dimension than the UBM.
    """
    count = min(options.num_gselect, ubm.num_gauss)
    result = Posteriors(np.zeros((len(feats), count), np.int32), np.zeros((len(feats), count), np.float32))
    least = np.full(len(feats), options.min_post)
    if frame_weights is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            least = np.where(frame_weights == 0, _MOST_MIN_POST, np.minimum(_MOST_MIN_POST, options.min_post / np.abs(frame_weights)))
    for start in range(0, len(feats), _BLOCK):
        rows = slice(start, start + _BLOCK)
        if isinstance(ubm, FullGmm):
            selected, scores = _selector(ubm, count).select(feats[rows])
            _prune(scores, scores.max(axis=1), least[rows], result.gauss[rows], result.weight[rows])
            result.gauss[rows] = np.take_along_axis(selected, result.gauss[rows], 1)
        else:
            scores = ubm.scores(feats[rows])
            _prune(scores, scores.max(axis=1), least[rows], result.gauss[rows], result.weight[rows])
    result.weight *= np.float32(options.posterior_scale)
    if frame_weights is not None:
        result.weight *= frame_weights[:, None].astype(np.float32)
    return result


@kernel(nogil=True)
def _prune(scores: np.ndarray, highest: np.ndarray, least: np.ndarray, gauss: np.ndarray, weight: np.ndarray) -> None:
    """Fill `gauss` and `weight` (T, n) from the scores (T, G), their highest (T,), and the least posteriors (T,)."""
    most = gauss.shape[1]
    best = np.empty(most)
    for t in range(scores.shape[0]):
        cutoff = highest[t] + math.log(least[t]) if least[t] > 0 else -np.inf
        kept = 0
        for g in range(scores.shape[1]):
            score = scores[t, g]
            if score > cutoff and (kept < most or score > best[most - 1]):
                place = min(kept, most - 1)
                while place > 0 and best[place - 1] < score:
                    best[place] = best[place - 1]
                    gauss[t, place] = gauss[t, place - 1]
                    place -= 1
                best[place] = score
                gauss[t, place] = g
                kept = min(kept + 1, most)
        total = 0.0
        for n in range(kept):
            best[n] = math.exp(best[n] - highest[t])
            total += best[n]
        threshold = least[t] * total
        while kept > 1 and best[kept - 1] < threshold:
            kept -= 1
            total -= best[kept]
            gauss[t, kept] = 0
        for n in range(kept):
            weight[t, n] = best[n] / total
