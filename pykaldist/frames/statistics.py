"""Sums over a store's features, kept beside them, from which the mean and variance of spliced frames follow without reading them.

Of utterances with frames x_0 .. x_{T-1} the sums over all utterances are kept of

    sum_t x_t,   x_min(k, T-1),   x_max(T-1-k, 0)      for k = 0 .. R-1, and of the same with x^2 in place of x.

Frames shifted by o > 0, beyond an utterance's end its last frame, are those of the utterance without x_0 .. x_{o-1}, and with x_{T-1} o
times. So their sum is sum_t x_t + sum_{k<o} (x_{T-1} - x_min(k, T-1)); for o < 0 it is the same from the other end.

Sums over utterances are exact: of each utterance's sums, which are float64, as integers in units of 2^62, 2^31, 1, 2^-31 and 2^-62. So they
do not depend on the order of the utterances, nor on how these are divided into shards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

REACH = 16  # frames to either side that a splice may have
_SHIFTS = (124, 93, 62, 31, 0)  # of the units, above 2^-62
_LARGEST = 2.0**124


class Statistics:
    """The sums of utterances' features; `limbs` (1 + 2 reach, 2, dim, 5) is int64: the sums, of x and x^2, in each unit."""

    def __init__(self, limbs: np.ndarray) -> None:
        self.limbs = limbs

    @classmethod
    def empty(cls, dim: int, reach: int = REACH) -> Statistics:
        """The sums of no utterance."""
        return cls(np.zeros((1 + 2 * reach, 2, dim, len(_SHIFTS)), np.int64))

    @property
    def reach(self) -> int:
        """How many frames to either side a splice may have."""
        return len(self.limbs) // 2

    def add(self, feats: np.ndarray) -> None:
        """Count an utterance's features, (T, dim) with T > 0."""
        x, last, k = feats.astype(np.float64), len(feats) - 1, np.arange(self.reach)
        edges = np.concatenate([x[np.minimum(k, last)], x[np.maximum(last - k, 0)]])
        totals = np.stack([x.sum(0), np.einsum("td,td->d", x, x)])
        self.limbs += _limbs(np.concatenate([totals[None], np.stack([edges, edges * edges], 1)]))

    def merge(self, other: Statistics) -> None:
        """Count another's utterances, too."""
        self.limbs += other.limbs

    def mean_and_scale(self, splice: Sequence[int], frames: int, floor: float = 1e-10) -> tuple[torch.Tensor, torch.Tensor]:
        """The mean and 1 / standard deviation of so many spliced frames, float32 (len(splice) x dim,) each; variances have a floor."""
        import torch  # two seconds that those who pack do not need

        sums = self.limbs.astype(object) @ np.array([1 << shift for shift in _SHIFTS], object)
        total, first, last = sums[0], sums[1 : 1 + self.reach], sums[1 + self.reach :]
        means, variances = [], []
        for offset in splice:
            lost, kept = (first, last[0]) if offset > 0 else (last, first[0])
            shifted = total + sum((kept - lost[k] for k in range(abs(offset))), 0 * total)
            mean, square = ((shifted / (frames << _SHIFTS[2])).astype(np.float64))
            means.append(mean)
            variances.append(np.maximum(square - mean**2, floor))
        return (torch.from_numpy(np.concatenate(means)).float(),
                torch.from_numpy(1.0 / np.sqrt(np.concatenate(variances))).float())


def _limbs(values: np.ndarray) -> np.ndarray:
    """Values as integers in each unit, (..., units); those too large are cut at 2^124."""
    rest, limbs = np.clip(values, -_LARGEST, _LARGEST), []
    for shift in _SHIFTS:
        unit = 2.0 ** (shift - _SHIFTS[2])
        limbs.append(np.trunc(rest / unit))
        rest = rest - limbs[-1] * unit
    return np.stack(limbs, -1).astype(np.int64)


def of_utterances(utts: Iterable[np.ndarray], dim: int, reach: int = REACH) -> Statistics:
    """The statistics of utterances' features."""
    statistics = Statistics.empty(dim, reach)
    for feats in utts:
        if len(feats):
            statistics.add(feats)
    return statistics
