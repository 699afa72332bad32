"""Another toolkit's labels as numpy arrays, one a frame: a directory of `<utterance>.npy`, or an `.npz` with an array an utterance.

Arrays are one-dimensional: integers (pdfs or phones) or strings (phones). Objects are refused: nothing is unpickled.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pykaldist.errors import UserError
from pykaldist.hmm.import_ali.sources.base import Frames, PlainSource, SourceOptions
from pykaldist.hmm.import_ali.sources.label_archive import kind_of
from pykaldist.io.entries import numpy_damage, reason


def recognises(path: Path) -> bool:
    """Whether `path` is an `.npz` file, or a directory of `.npy` files."""
    return path.suffix == ".npz" or (path.is_dir() and any(path.glob("*.npy")))


def read(path: Path, options: SourceOptions) -> PlainSource:
    """Open the arrays at `path` as a source."""
    kind = kind_of(path.name if options.labels == "auto" else options.labels)
    arrays = _npz(path) if path.suffix == ".npz" else ((p.stem, _load(p)) for p in sorted(path.glob("*.npy")))
    return PlainSource("numpy labels", ((utt, _frames(path, utt, array, kind)) for utt, array in arrays))


def _load(path: Path) -> np.ndarray:
    try:
        return np.load(path, allow_pickle=False)
    except numpy_damage() as error:
        raise UserError(f"{path} is no readable numpy array ({reason(error)}); write it again with numpy.save.") from error


def _npz(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    try:
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            for utt in arrays.files:
                yield utt, arrays[utt]
    except numpy_damage() as error:
        raise UserError(f"{path} is no readable set of numpy arrays ({reason(error)}); write it again with numpy.savez.") from error


def _frames(path: Path, utt: str, array: np.ndarray, kind: str) -> Frames:
    if array.ndim != 1 or array.dtype.kind not in "iuU":
        raise UserError(f"{path}, {utt}: expected one integer or string a frame, found shape {array.shape} of {array.dtype}; "
                        "give labels, not scores.")
    if array.dtype.kind == "U":
        return Frames("phone", array)
    if len(array) and not 0 <= array.min() <= array.max() < 2**31:
        raise UserError(f"{path}, {utt}: found the label {array.min() if array.min() < 0 else array.max()}; labels are numbered from 0.")
    return Frames(kind, array.astype(np.int32))
