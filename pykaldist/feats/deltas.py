"""Delta features, as Kaldi's add-deltas (src/feat/feature-functions.cc).

With window W the filter of order one is w_j = j / sum_{k=-W..W} k^2, j = -W..W; the filter of order n is w convolved n times
with itself. Every order is applied to the static features, whose first and last frame are repeated beyond the edges.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pykaldist.errors import UserError
from pykaldist.options import option


@dataclass
class DeltaOptions:
    """The options of a `delta_opts` file."""

    delta_order: int = option(2, "highest order of the deltas; 0 for none")
    delta_window: int = option(2, "frames on either side that a delta looks at")

    def __post_init__(self) -> None:
        if not 0 <= self.delta_order <= 10 or not 1 <= self.delta_window <= 100:
            raise UserError("--delta-order must be 0 to 10 and --delta-window 1 to 100, "
                            f"found {self.delta_order} and {self.delta_window}.")


def add_deltas(x: np.ndarray, order: int = 2, window: int = 2) -> np.ndarray:
    """Append delta features: frames (T x D) -> float32 T x (order + 1) D: statics, deltas, delta-deltas, ..."""
    frames, dim = x.shape
    reach = order * window
    padded = np.concatenate([np.repeat(x[:1], reach, axis=0), x, np.repeat(x[-1:], reach, axis=0)]).astype(np.float32, copy=False)
    y = np.empty((frames, (order + 1) * dim), dtype=np.float32)
    first = np.arange(-window, window + 1) / (2 * np.sum(np.arange(1, window + 1) ** 2))
    taps = np.ones(1)
    for n in range(order + 1):
        offset = reach - n * window
        y[:, n * dim : (n + 1) * dim] = sum(
            np.float32(tap) * padded[offset + j : offset + j + frames] for j, tap in enumerate(taps) if tap != 0)
        taps = np.convolve(taps, first)
    return y
