"""Principal component analysis (PCA): the directions in which frames vary most, with mean 0 and variance 1 in each (Kaldi's est-pca)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from pykaldist.errors import UserError


def pca_transform(matrices: Iterable[np.ndarray], dim: int, normalize_mean: bool = True, normalize_variance: bool = True) -> np.ndarray:
    """The transform (dim, D), or (dim, D + 1) with an offset where means are normalised, float32, of frames (T, D).

    Raises UserError where there are fewer frames or dimensions than the transform needs.
    """
    count, total, squares = 0, np.zeros(0), np.zeros((0, 0))
    for matrix in matrices:
        x = matrix.astype(np.float64)
        if not count:
            total, squares = np.zeros(x.shape[1]), np.zeros((x.shape[1], x.shape[1]))
        total += x.sum(axis=0)
        squares += x.T @ x
        count += len(x)
    if not 1 <= dim <= len(total):
        raise UserError(f"PCA from {len(total)} dimensions cannot have {dim}; ask for 1 to {len(total)}.")
    if count <= len(total):
        raise UserError(f"PCA of {len(total)} dimensions has {count} frames; it needs more data.")
    mean = total / count
    values, vectors = np.linalg.eigh(squares / count - np.outer(mean, mean))
    transform = vectors[:, ::-1][:, :dim].T
    if normalize_variance:
        transform = transform / np.sqrt(np.maximum(values[::-1][:dim], 1e-15))[:, None]
    if normalize_mean:
        transform = np.column_stack([transform, -transform @ mean])
    return transform.astype(np.float32)
