"""Kaldi's compressed matrices: one byte a value with column headers (`CM`, read and written), two bytes (`CM2`), one byte (`CM3`).

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


def compressed(matrix: np.ndarray) -> bytes:
    """The binary form `CM` of a matrix with at least one element, from its token on: the bytes of kaldiio, in less of its time."""
    least, span, headers, _, content = quantised(matrix)
    return b"CM " + COMPRESSED_HEADER.pack(least, span, *matrix.shape) + headers.astype("<u2").tobytes() + content.tobytes()


def quantised(matrix: np.ndarray) -> tuple[float, float, np.ndarray, np.ndarray, np.ndarray]:
    """The parts of a matrix (T, K) in the form `CM`.

    They are the least value, the range, each column's percentiles as integers and as numbers (K, 4), and the columns' bytes (K, T). Each of
    the three intervals gives a value a byte of its own, cut off at the interval's ends; they add up.
    """
    rows = len(matrix)
    columns = np.ascontiguousarray(matrix.T)
    ordered = np.sort(columns, axis=1)
    least, most = ordered[:, 0].min(), ordered[:, -1].max()
    percentiles = ordered[:, [0, rows // 4, rows // 4 * 3, rows - 1]] if rows >= 5 else ordered
    while percentiles.shape[1] < 4:  # each that is missing is 1 more than the one before
        percentiles = np.concatenate([percentiles, percentiles[:, -1:] + 1], axis=1)
    span = (most if most > least else least + (1 + abs(least))) - least
    headers = ((percentiles - least) / span * 65535 + 0.499).astype("<u2").astype(np.int64)
    headers[:, 0] = np.minimum(headers[:, 0], 65532)
    for place, highest in ((1, 65533), (2, 65534), (3, 65535)):  # they rise
        headers[:, place] = np.minimum(np.maximum(headers[:, place], headers[:, place - 1] + 1), highest)
    bounds = least + headers.astype(np.float32) * span / 65535
    content = np.zeros(columns.shape, np.uint8)
    for place, (begin, end) in enumerate(((0, 64), (64, 192), (192, 255))):
        low, high = bounds[:, place, None], bounds[:, place + 1, None]
        steps = columns - low
        steps /= high - low
        steps *= end - begin
        steps += begin + 0.5
        np.maximum(steps, begin, out=steps)
        np.minimum(steps, end, out=steps)
        steps -= begin  # exact
        content += steps.astype(np.uint8)
    return least, span, headers, bounds, content
