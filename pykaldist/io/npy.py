"""Numpy's files of one array, written so that no error is lost.

`numpy.save` writes to a file by C's stdio, and does not look at what its `fclose` returns: of a disk that is full or fails at that moment
nothing would be said. Here the bytes go through Python's file.
"""

from __future__ import annotations

import io
import os

import numpy as np

from pykaldist.io.atomic import atomic_open


def save_array(path: str | os.PathLike[str], array: np.ndarray) -> None:
    """Write an array to a `.npy` file, whole or not at all. For arrays that fit in memory twice."""
    content = io.BytesIO()
    np.save(content, array, allow_pickle=False)
    with atomic_open(path, "wb") as stream:
        stream.write(content.getbuffer())
