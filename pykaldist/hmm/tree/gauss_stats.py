"""The likelihood of frames under one Gaussian with diagonal covariance, from their sums: the measure by which decision trees are grown.

n frames with sums x and x2 of their values and squares have, under the Gaussian that fits them best, the log-likelihood
    L = -n/2 sum_d [ log 2 pi + log max(var_d, floor) + var_d / max(var_d, floor) ],     var = x2 / n - (x / n)^2,
which depends on the sums alone; so the gain of dividing a set of frames in two is known from the sums of its parts.
Source: S. J. Young, J. J. Odell, P. C. Woodland, "Tree-based state tying for high accuracy acoustic modelling", 1994;
Kaldi's tree/clusterable-classes.cc (GaussClusterable).
"""

from __future__ import annotations

import numpy as np

VARIANCE_FLOOR = 0.01


def pack_sums(count: np.ndarray, x: np.ndarray, x2: np.ndarray) -> np.ndarray:
    """Put counts (E,), sums of values and of squares (E, D) into rows [count, x, x2] (E, 1 + 2 D) float64, which can be added up."""
    return np.concatenate([count[:, None], x, x2], axis=1).astype(np.float64)


def log_likelihood(sums: np.ndarray) -> np.ndarray:
    """The log-likelihood L of each row [count, x, x2] (..., 1 + 2 D), float64 (...,); 0 for a row without frames."""
    dim = sums.shape[-1] // 2
    count = sums[..., :1]
    n = np.where(count > 0, count, 1.0)
    mean = sums[..., 1:1 + dim] / n
    variance = sums[..., 1 + dim:] / n
    variance -= mean * mean
    floored = np.maximum(variance, VARIANCE_FLOOR)
    variance /= floored
    np.log(floored, out=floored)
    floored += variance
    result = -0.5 * count[..., 0] * (floored.sum(axis=-1) + dim * np.log(2 * np.pi))
    return np.where(count[..., 0] > 0, result, 0.0)
