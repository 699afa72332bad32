"""Sums of outer products of frames under many weightings at once: what MLLT and fMLLR are estimated from."""

from __future__ import annotations

import numpy as np

_BLOCK = 2048  # frames at a time: float32 inside a block, float64 between blocks


def weighted_outer_products(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """G[d] = sum_t weights[t, d] x[t] x[t]^T for frames x (T, E) and weights (T, D), float32: (D, E, E) float64.

    The products x_i x_j of the upper triangle are columns of one matrix, so that all D sums are one matrix product.
    """
    dim = x.shape[1]
    rows, columns = np.triu_indices(dim)
    sums = np.zeros((weights.shape[1], len(rows)))
    for start in range(0, len(x), _BLOCK):
        block = x[start:start + _BLOCK]
        sums += weights[start:start + _BLOCK].T @ (block[:, rows] * block[:, columns])
    result = np.empty((weights.shape[1], dim, dim))
    result[:, rows, columns] = sums
    result[:, columns, rows] = sums
    return result
