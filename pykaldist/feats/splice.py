"""Splicing: each frame with its neighbours, the first and last frame repeated beyond the edges (Kaldi's splice-feats)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pykaldist.errors import UserError
from pykaldist.options import option


@dataclass
class SpliceOptions:
    """The options of a `splice_opts` file."""

    left_context: int = option(4, "frames before")
    right_context: int = option(4, "frames behind")

    def __post_init__(self) -> None:
        if min(self.left_context, self.right_context) < 0:
            raise UserError(f"--left-context and --right-context must not be negative, found {self.left_context} and {self.right_context}.")


def splice(x: np.ndarray, left: int, right: int) -> np.ndarray:
    """Frames (T x D) -> T x ((left + 1 + right) D), the earliest neighbour first."""
    frames, dim = x.shape
    width = left + 1 + right
    padded = np.concatenate([np.repeat(x[:1], left, axis=0), x, np.repeat(x[-1:], right, axis=0)])
    step = padded.strides[0]
    windows = np.lib.stride_tricks.as_strided(padded, (frames, width, dim), (step, step, padded.strides[1]), writeable=False)
    return windows.reshape(frames, width * dim)
