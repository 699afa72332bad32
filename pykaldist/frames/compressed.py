"""Features in 8 bits a value, by the rule of Kaldi's compressed matrices: each column of an utterance is a line in three parts.

A column's smallest value, its quarter points and its largest value, p0, p25, p75, p100, are kept. Bytes 0 to 64 reach from p0 to p25, 64 to
192 from p25 to p75, and 192 to 255 from p75 to p100. So byte c stands for

    p0 + a min(c, 64) + b clamp(c - 64, 0, 128) + d max(c - 192, 0)

with the slopes a, b, d of the three parts. An utterance's *scales* are p0, a, b and d of each column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pykaldist.io.compressed import quantised

if TYPE_CHECKING:
    import torch


def compress(feats: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Features (T, dim) as bytes, and their scales, float32 (4, dim)."""
    *_, bounds, columns = quantised(feats)
    p0, p25, p75, p100 = bounds.T.astype(np.float64)
    scales = np.stack([p0, (p25 - p0) / 64, (p75 - p25) / 128, (p100 - p75) / 63]).astype(np.float32)
    return np.ascontiguousarray(columns.T), scales


def expand(values: torch.Tensor, scales: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Bytes (..., dim) as the numbers that they stand for, in `out`, float32; scales (4, ..., dim) broadcast against them."""
    import torch  # two seconds that those who pack do not need

    torch.clamp(values, max=64, out=(low := torch.empty_like(values)))
    torch.addcmul(scales[0], low, scales[1], out=out)
    out.addcmul_(values.clamp(64, 192) - 64, scales[2])
    return out.addcmul_(values.clamp(min=192) - 192, scales[3])


def expanded(values: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """An utterance's bytes (T, dim) as the numbers that they stand for, float32; its scales (4, dim)."""
    import torch

    found = torch.empty(values.shape, dtype=torch.float32)
    return expand(torch.from_numpy(np.array(values)), torch.from_numpy(np.array(scales)), found).numpy()
