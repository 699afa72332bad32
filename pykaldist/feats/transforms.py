"""Linear transforms of features: one for all speakers (LDA+MLLT, `final.mat`), or one a speaker (fMLLR, `trans.*`).

They do what Kaldi's transform-feats does.

A matrix A of D' x D is linear, y = A x; one of D' x (D + 1) is affine, y = A [x; 1].
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from pathlib import Path
from typing import cast

import numpy as np

from pykaldist.errors import ALIGNING, UserError
from pykaldist.io.archive import read_value
from pykaldist.io.kaldi import KaldiReader
from pykaldist.io.scratch import StoredValues
from pykaldist.io.tables import output_archive, read_archive, write_matrix


def apply_transform(x: np.ndarray, matrix: np.ndarray, where: str) -> np.ndarray:
    """Apply a linear or affine matrix to frames (T x D): float32 T x D'; raises UserError, naming `where`, where they do not fit."""
    dim = x.shape[1]
    if matrix.ndim != 2 or matrix.shape[1] - dim not in (0, 1):
        raise UserError(f"{where}: a transform of shape {matrix.shape} does not fit features of dimension {dim}, expected {dim} or "
                        f"{dim + 1} columns; is it of the system of these features?")
    matrix = matrix.astype(np.float32, copy=False)
    y = x @ matrix[:, :dim].T
    return y if matrix.shape[1] == dim else y + matrix[:, dim]


def read_matrix(path: str | os.PathLike[str]) -> np.ndarray:
    """Read a file with one matrix, such as `final.mat`."""
    return KaldiReader.only_matrix(path)


class SpeakerTransforms(StoredValues[np.ndarray]):
    """The fMLLR transform of each speaker, in the order in which they came; one takes 13 kB.

    They lie in a nameless file in `folder`, by default that of temporary files. `transform_dir` is where they were read (None: nowhere).
    """

    transform_dir: Path | None = None

    def __init__(self, transforms: Iterable[tuple[str, np.ndarray]] = (), folder: Path | None = None) -> None:
        super().__init__(_matrix_of, write_matrix, folder)
        for speaker, matrix in transforms:
            self.add(speaker, matrix)

    @classmethod
    def read(cls, transform_dir: str | os.PathLike[str]) -> SpeakerTransforms:
        """Read all `trans.<job>` of a directory; raises UserError where there are none, two of one speaker, or some of another shape."""
        paths = sorted(p for p in Path(transform_dir).glob("trans.*") if p.name.removeprefix("trans.").isdigit())
        if not paths:
            raise UserError(f"{transform_dir} has no trans.1; give the directory of a speaker-adapted alignment or decoding.")
        found, shape = cls(), None
        found.transform_dir = Path(transform_dir)
        for path in paths:
            for speaker, matrix in read_archive(path):
                if speaker in found:
                    raise UserError(f"{path}, {speaker}: a second transform of this speaker; make the alignment or the decoding again "
                                    f"({ALIGNING}, steps/decode_fmllr.sh).")
                shape = shape or matrix.shape
                if matrix.ndim != 2 or matrix.shape != shape or matrix.shape[1] - matrix.shape[0] not in (0, 1):
                    raise UserError(f"{path}, {speaker}: expected a transform, a matrix of D x D or D x (D + 1) for one D, found shape "
                                    f"{matrix.shape} behind {shape}; make the alignment or the decoding again ({ALIGNING}, "
                                    "steps/decode_fmllr.sh).")
                found.add(speaker, matrix)
        return found


def _matrix_of(data: bytes) -> np.ndarray:
    return read_value(io.BufferedReader(cast(io.RawIOBase, io.BytesIO(data))))


def write_speaker_transforms(path: str | os.PathLike[str], transforms: Iterable[tuple[str, np.ndarray]]) -> None:
    """Write a file `trans.<job>`: (speaker, matrix) pairs as an archive of float32."""
    with output_archive(path) as stream:
        for speaker, matrix in transforms:
            stream.write(speaker.encode("utf-8") + b" ")
            write_matrix(stream, matrix.astype(np.float32))
