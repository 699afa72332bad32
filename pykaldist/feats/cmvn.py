"""Cepstral mean and variance normalisation: per speaker from stored statistics, or over a sliding window.

Statistics of T frames x_t of dimension D are Kaldi's 2 x (D+1) matrix: row 0 holds sum_t x_t and the count T, row 1 holds
sum_t x_t^2 and 0. With m = sum x / T and v = sum x^2 / T - m^2 the normalised frame is (x - m) / sqrt(v)
(Kaldi: src/transform/cmvn.cc). The sliding window takes m and v from the frames around t (src/feat/feature-functions.cc,
SlidingWindowCmn); here all windows come at once from differences of cumulative sums.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from pykaldist.errors import UserError
from pykaldist.options import option

VARIANCE_FLOOR = 1e-20
SLIDING_VARIANCE_FLOOR = 1e-10


@dataclass
class CmvnOptions:
    """The options of a `cmvn_opts` file. Raises UserError where options contradict each other."""

    norm_means: bool = option(True, "subtract the mean")
    norm_vars: bool = option(False, "divide by the standard deviation")
    sliding: bool = option(False, "normalise over a sliding window of the utterance instead of over the speaker")
    cmn_window: int = option(600, "frames in the sliding window")
    min_cmn_window: int = option(100, "least frames in the window at the utterance's start; without --center only")
    center: bool = option(False, "window centred on the frame, instead of ending with it")

    def __post_init__(self) -> None:
        if self.norm_vars and not self.norm_means:
            raise UserError("--norm-vars=true needs --norm-means=true.")
        if not self.sliding and (self.cmn_window, self.min_cmn_window, self.center) != (600, 100, False):
            raise UserError("--cmn-window, --min-cmn-window and --center need --sliding=true.")
        if self.sliding and not self.norm_means:
            raise UserError("--sliding=true needs --norm-means=true.")
        if min(self.cmn_window, self.min_cmn_window) < 1:
            raise UserError("--cmn-window and --min-cmn-window must be positive.")


def cmvn_stats(matrices: Iterable[np.ndarray]) -> np.ndarray:
    """Statistics of all frames of `matrices` (each T x D), as 2 x (D+1) float64.

    Raises UserError where D varies or nothing is given.
    """
    stats: np.ndarray | None = None
    for matrix in matrices:
        x = np.asarray(matrix, dtype=np.float64)
        if stats is None:
            stats = np.zeros((2, x.shape[1] + 1))
        if stats.shape[1] != x.shape[1] + 1:
            raise UserError(f"features have {x.shape[1]} dimensions after {stats.shape[1] - 1} before; "
                            "make them again with one config.")
        stats[0, :-1] += x.sum(axis=0)
        stats[1, :-1] += np.einsum("td,td->d", x, x)
        stats[0, -1] += len(x)
    if stats is None:
        raise UserError("there are no features to take the mean and variance of.")
    return stats


def apply_cmvn(x: np.ndarray, stats: np.ndarray, norm_vars: bool = False) -> np.ndarray:
    """Normalise frames (T x D) by statistics (2 x (D+1)); returns float32 T x D.

    Raises UserError where the dimensions differ or the statistics count no frame.
    """
    if stats.ndim != 2 or stats.shape[0] != 2 or stats.shape[1] != x.shape[1] + 1:
        raise UserError(f"CMVN statistics of shape {stats.shape} do not fit features of dimension {x.shape[1]} "
                        f"(expected (2, {x.shape[1] + 1})); run steps/compute_cmvn_stats.sh again.")
    if not np.isfinite(stats).all():
        raise UserError("CMVN statistics are not finite; run steps/compute_cmvn_stats.sh again.")
    count = stats[0, -1]
    if not count >= 1:
        raise UserError(f"CMVN statistics count {count:g} frames; run steps/compute_cmvn_stats.sh again.")
    mean = stats[0, :-1] / count
    if not norm_vars:
        return x - mean.astype(np.float32)
    scale = 1 / np.sqrt(np.maximum(stats[1, :-1] / count - mean * mean, VARIANCE_FLOOR))
    return x * scale.astype(np.float32) - (mean * scale).astype(np.float32)


def sliding_cmvn(x: np.ndarray, window: int = 600, min_window: int = 100, center: bool = False,
                 norm_vars: bool = False) -> np.ndarray:
    """Normalise frames (T x D) over a window that slides with them, as Kaldi's apply-cmvn-sliding; returns float32 T x D."""
    total = len(x)
    t = np.arange(total)
    if center:
        start = t - window // 2
        end = start + window
        end -= np.minimum(start, 0)
    else:
        start = t - window
        end = np.maximum(t + 1, min_window)
    start = np.maximum(np.maximum(start, 0) - np.maximum(end - total, 0), 0)
    end = np.minimum(end, total)
    frames = (end - start)[:, None]

    wide = x.astype(np.float64)
    offset = wide.mean(axis=0)  # the sums lose fewer digits around zero
    wide -= offset
    mean = _window_sums(wide, start, end) / frames
    y = wide - mean
    if norm_vars:
        variance = _window_sums(wide * wide, start, end) / frames - mean * mean
        y = np.where(frames == 1, 0.0, y / np.sqrt(np.maximum(variance, SLIDING_VARIANCE_FLOOR)))
    return y.astype(np.float32)


def _window_sums(x: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Sums of x over windows: row t is the sum of x[start[t]:end[t]]."""
    cumulative = np.concatenate([np.zeros((1, x.shape[1])), np.cumsum(x, axis=0)])
    return cumulative[end] - cumulative[start]
