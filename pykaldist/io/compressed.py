"""Reader of Kaldi's compressed matrices: one byte a value with column headers (`CM`), two bytes (`CM2`), one byte (`CM3`).

All begin with the least value, the range (floats), rows and columns (int32). In `CM2` and `CM3` a row-major integer v stands for
min + range v / (2^bits - 1). In `CM` each column first has its 0th, 25th, 75th and 100th percentile as such 16-bit integers; then come
the bytes, column by column, which divide the three intervals between percentiles into 64, 128 and 63 steps.
Source: Kaldi's matrix/compressed-matrix.cc.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pykaldist.io.raw_values import COMPRESSED_HEADER


def read_compressed(kind: str, take: Callable[[int], bytes]) -> np.ndarray:
    """The matrix (rows x columns, float32) behind the token `kind`; `take(n)` gives the next n bytes, or raises.

    Raises ValueError for dimensions that no matrix has.
    """
    least, span, rows, cols = COMPRESSED_HEADER.unpack(take(COMPRESSED_HEADER.size))
    if rows < 0 or cols < 0 or (rows == 0) != (cols == 0):
        raise ValueError(f"a matrix of {rows} x {cols}")
    if kind != "CM":
        dtype, steps = (np.dtype("<u2"), 65535) if kind == "CM2" else (np.dtype("u1"), 255)
        values = np.frombuffer(take(rows * cols * dtype.itemsize), dtype=dtype).reshape(rows, cols)
        return np.float32(least) + np.float32(span) * np.float32(1 / steps) * values.astype(np.float32)
    headers = np.frombuffer(take(8 * cols), dtype="<u2").reshape(cols, 4).T.astype(np.float32)
    percentiles: np.ndarray = np.float32(least) + np.float32(span) * np.float32(1 / 65535) * headers[:, :, None]
    p0, p25, p75, p100 = percentiles
    steps_up: np.ndarray = np.frombuffer(take(rows * cols), dtype="u1").reshape(cols, rows).astype(np.float32)
    low = p0 + (p25 - p0) * steps_up * np.float32(1 / 64)
    middle = p25 + (p75 - p25) * (steps_up - 64) * np.float32(1 / 128)
    high = p75 + (p100 - p75) * (steps_up - 192) * np.float32(1 / 63)
    return np.ascontiguousarray(np.where(steps_up <= 64, low, np.where(steps_up <= 192, middle, high)).T, dtype=np.float32)
