"""Cepstral mean and variance normalisation: per speaker from stored statistics, over a sliding window, or of what was heard so far.

Statistics of T frames x_t of dimension D are Kaldi's 2 x (D+1) matrix: row 0 holds sum_t x_t and the count T, row 1 holds
sum_t x_t^2 and 0. With m = sum x / T and v = sum x^2 / T - m^2 the normalised frame is (x - m) / sqrt(v)
(Kaldi: src/transform/cmvn.cc). The sliding window takes m and v from the frames around t (src/feat/feature-functions.cc,
SlidingWindowCmn); here all windows come at once from differences of cumulative sums. Online normalisation has windows that end with
the frame; where they are short, statistics of the speaker's earlier utterances, and then of all data, fill them up
(src/feat/online-feature.cc, OnlineCmvn).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from pykaldist.errors import FEATURES, UserError
from pykaldist.kernels import kernel
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


@dataclass
class OnlineCmvnOptions:
    """The options of an `online_cmvn.conf` file. Raises UserError where options contradict each other."""

    cmn_window: int = option(600, "frames in the window, which ends with the frame")
    speaker_frames: int = option(600, "most frames of the speaker's earlier utterances that fill up a shorter window")
    global_frames: int = option(200, "most frames of the global statistics that fill it up further")
    norm_means: bool = option(True, "subtract the mean")
    norm_vars: bool = option(False, "divide by the standard deviation")
    skip_dims: str = option("", "dimensions that stay as they are, such as 13:14:15")

    def __post_init__(self) -> None:
        if self.norm_vars and not self.norm_means:
            raise UserError("--norm-vars=true needs --norm-means=true.")
        if self.cmn_window < 1 or not 0 <= self.global_frames <= self.speaker_frames <= self.cmn_window:
            raise UserError(f"expected 0 <= --global-frames <= --speaker-frames <= --cmn-window, found {self.global_frames}, "
                            f"{self.speaker_frames} and {self.cmn_window}.")
        if not all(dim.isdecimal() for dim in self.skipped()):
            raise UserError(f"--skip-dims={self.skip_dims}: expected numbers with colons between them.")

    def skipped(self) -> list[str]:
        """The dimensions in `skip_dims`."""
        return self.skip_dims.split(":") if self.skip_dims else []


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
            raise UserError(f"features have {x.shape[1]} dimensions after {stats.shape[1] - 1} before; make them again with one config "
                            f"({FEATURES}).")
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


def online_cmvn(x: np.ndarray, global_stats: np.ndarray, options: OnlineCmvnOptions, speaker_stats: np.ndarray | None = None) -> np.ndarray:
    """Normalise frames (T x D) by what was heard until each of them, as Kaldi's OnlineCmvn; returns float32 T x D.

    `global_stats` and `speaker_stats`, of the speaker's earlier utterances, are 2 x (D+1). Raises UserError where they do not fit.
    """
    for stats, what in ((global_stats, "global"), (speaker_stats, "the speaker's")):
        if stats is not None and stats.shape != (2, x.shape[1] + 1):
            raise UserError(f"{what} CMVN statistics of shape {stats.shape} do not fit features of dimension {x.shape[1]}; take those that "
                            "were made of such features.")
    if not global_stats[0, -1] > 0:
        raise UserError("the global CMVN statistics count no frames; run steps/compute_cmvn_stats.sh, and train the UBM again.")
    if not options.norm_means:
        return x
    missing = np.maximum(options.cmn_window - np.arange(1.0, len(x) + 1), 0)  # frames that the window lacks
    heard = 0.0 if speaker_stats is None else speaker_stats[0, -1]
    of_speaker = np.minimum(missing, min(options.speaker_frames, heard))
    of_all = np.minimum(missing - of_speaker, options.global_frames)
    means = global_stats / global_stats[0, -1]
    earlier = speaker_stats / heard if speaker_stats is not None and heard > 0 else np.zeros_like(means)

    def average(y: np.ndarray, row: int) -> np.ndarray:
        result = np.empty_like(y)
        _averages_until(y, options.cmn_window, of_speaker, earlier[row, :-1], of_all, means[row, :-1], result)
        return result

    wide = x.astype(np.float64)
    mean = average(wide, 0)
    y = wide - mean
    if options.norm_vars:
        y /= np.sqrt(np.maximum(average(wide * wide, 1) - mean * mean, VARIANCE_FLOOR))
    for dim in map(int, options.skipped()):
        if dim >= x.shape[1]:
            raise UserError(f"--skip-dims={options.skip_dims} of features of {x.shape[1]} dimensions.")
        y[:, dim] = wide[:, dim]
    return y.astype(np.float32)


def _window_sums(x: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Sums of x over windows: row t is the sum of x[start[t]:end[t]]."""
    cumulative = np.concatenate([np.zeros((1, x.shape[1])), np.cumsum(x, axis=0)])
    return cumulative[end] - cumulative[start]


@kernel(nogil=True)
def _averages_until(x: np.ndarray, window: int, of_speaker: np.ndarray, earlier: np.ndarray, of_all: np.ndarray, mean: np.ndarray,
                    result: np.ndarray) -> None:
    """Write to row t the average of the last `window` rows of x until it, of_speaker[t] times `earlier` and of_all[t] times `mean`."""
    total = np.zeros(x.shape[1])
    for t in range(len(x)):
        count = min(t + 1, window) + of_speaker[t] + of_all[t]
        for d in range(x.shape[1]):
            total[d] += x[t, d]
            if t >= window:
                total[d] -= x[t - window, d]
            result[t, d] = (total[d] + of_speaker[t] * earlier[d] + of_all[t] * mean[d]) / count
