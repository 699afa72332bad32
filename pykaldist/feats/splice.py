"""Splicing: each frame with its neighbours, the first and last frame repeated beyond the edges (Kaldi's splice-feats)."""

from __future__ import annotations

import numpy as np


def splice(x: np.ndarray, left: int, right: int) -> np.ndarray:
    """Frames (T x D) -> T x ((left + 1 + right) D), the earliest neighbour first."""
    frames, dim = x.shape
    width = left + 1 + right
    padded = np.concatenate([np.repeat(x[:1], left, axis=0), x, np.repeat(x[-1:], right, axis=0)])
    step = padded.strides[0]
    windows = np.lib.stride_tricks.as_strided(padded, (frames, width, dim), (step, step, padded.strides[1]), writeable=False)
    return windows.reshape(frames, width * dim)
