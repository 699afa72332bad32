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
from pykaldist.kernels import kernel

if TYPE_CHECKING:
    import torch


def compress(feats: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Features (T, dim) as bytes, and their scales, float32 (4, dim)."""
    *_, bounds, columns = quantised(feats)
    p0, p25, p75, p100 = bounds.T.astype(np.float64)
    scales = np.stack([p0, (p25 - p0) / 64, (p75 - p25) / 128, (p100 - p75) / 63]).astype(np.float32)
    return np.ascontiguousarray(columns.T), scales


@kernel(nogil=True)
def _expand(values: np.ndarray, scales: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
    for n in range(values.shape[0]):
        first, a, b, d = scales[rows[n], 0], scales[rows[n], 1], scales[rows[n], 2], scales[rows[n], 3]
        for t in range(values.shape[1]):
            for k in range(values.shape[2]):
                c = np.int32(values[n, t, k])
                out[n, t, k] = (first[k] + np.float32(min(c, 64)) * a[k] + np.float32(min(max(c - 64, 0), 128)) * b[k]
                                + np.float32(max(c - 192, 0)) * d[k])


def expand(values: torch.Tensor, scales: torch.Tensor, rows: torch.Tensor, out: torch.Tensor) -> None:
    """Write the numbers that bytes (N, T, dim) stand for to `out`, float32; bytes [n] have the scales `scales[rows[n]]` (4, dim)."""
    if values.is_cpu:  # where PyTorch takes four times as long: it goes along so many short rows
        _expand(values.numpy(), scales.numpy(), rows.numpy(), out.numpy())
        return
    import torch  # two seconds that those who pack do not need

    first, a, b, d = scales[rows].transpose(0, 1)[:, :, None]
    torch.addcmul(first, values.clamp(max=64), a, out=out)
    out.addcmul_(values.clamp(64, 192) - 64, b).addcmul_(values.clamp(min=192) - 192, d)


def expanded(values: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """An utterance's bytes (T, dim) as the numbers that they stand for, float32; its scales (4, dim)."""
    found = np.empty((1, *values.shape), np.float32)
    _expand(np.array(values)[None], np.array(scales)[None], np.zeros(1, np.int64), found)
    return found[0]
