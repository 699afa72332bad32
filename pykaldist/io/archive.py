r"""Reader of the entries of a Kaldi archive, binary or text: matrices, vectors, integer vectors.

An entry is a key, a space, and a value: `\0B` and the binary form, or text up to the end of the line (`1 2 3`, `[ 1 2.5 ]`) or, for a
matrix, to the closing bracket. What a file says about lengths is not believed: memory grows only with what is read.
"""

from __future__ import annotations

import io
from typing import BinaryIO

import numpy as np

from pykaldist.io.compressed import read_compressed
from pykaldist.io.raw_values import COMPRESSED, INTEGERS, RawValue, read_raw, read_raw_integers, read_shape

_SIZED_INT = np.dtype([("size", "i1"), ("value", "<i4")])


def read_value(stream: io.BufferedReader) -> np.ndarray:
    """Read the value at the stream's position: float32 or float64 matrix or vector, or int32 vector. Raises one of DAMAGE."""
    return array_of(read_raw(stream)) if stream.peek(1)[:1] == b"\0" else _text_value(stream)


def shape_of(stream: io.BufferedReader) -> tuple[int, ...]:
    """The shape of the value at the stream's position; of a binary one no more is read. Raises one of DAMAGE."""
    return read_shape(stream) if stream.peek(1)[:1] == b"\0" else _text_value(stream).shape


def read_int_vector(stream: BinaryIO) -> np.ndarray:
    r"""The binary form of vector<int32>, after `\0B`: sized count, sized elements."""
    return array_of(read_raw_integers(stream))


def array_of(value: RawValue) -> np.ndarray:
    """The numbers of a value: float32, float64 or int32."""
    if value.kind == INTEGERS:
        return np.frombuffer(value.content, dtype=_SIZED_INT)["value"].astype(np.int32)
    if value.kind in COMPRESSED:
        return read_compressed(value.kind, io.BytesIO(value.content).read)
    dtype = np.dtype("<f4" if value.kind[0] == "F" else "<f8")
    return np.frombuffer(value.content, dtype=dtype).reshape(value.shape).astype(dtype.newbyteorder("="))


def _text_value(stream: BinaryIO) -> np.ndarray:
    line = stream.readline()
    if not line.endswith(b"\n"):
        raise EOFError("its last line has no end")
    line = line.strip()
    if not line.startswith(b"["):
        fields = line.split()
        try:
            return np.array([int(f) for f in fields], dtype=np.int32)
        except ValueError:
            return np.array([float(f) for f in fields], dtype=np.float32)
    if line.endswith(b"]") and line != b"[ ]" and line != b"[]":
        return np.array(line[1:-1].split(), dtype=np.float64).astype(np.float32)
    rows = [line[1:].split()]
    while not line.endswith(b"]"):
        line = stream.readline()
        if not line.endswith(b"\n"):
            raise EOFError("a matrix without its closing bracket, or without the end of that line")
        line = line.strip()
        rows.append(line.split())
    rows[-1] = [field for field in (f.rstrip(b"]") for f in rows[-1]) if field]
    rows = [row for row in rows if row]
    if len({len(row) for row in rows}) > 1:
        raise ValueError("matrix rows of different lengths")
    return np.array(rows, dtype=np.float64).astype(np.float32).reshape(len(rows), -1 if rows else 0)
