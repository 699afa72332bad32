r"""Binary values of archives as their bytes, with kind and shape: read without numpy.

A binary value is `\0B`, then for integers a sized count and sized elements, else a token (`FM `, `DV `, `CM2 `, ...), sized dimensions
and the elements. What a file says about lengths is not believed: memory grows only with what is read.
"""

from __future__ import annotations

import io
import struct
from typing import BinaryIO

from pykaldist.io.entries import take

INTEGERS = "integers"
COMPRESSED_HEADER = struct.Struct("<ffii")  # the least value, the range, rows, columns
#: Kaldi's compressed matrices: bytes a column and bytes an element behind the header
COMPRESSED = {"CM": (8, 1), "CM2": (0, 2), "CM3": (0, 1)}


class RawValue:
    """A value of an archive: `kind` is FM, DM, FV or DV (float or double, matrix or vector), one of COMPRESSED, or INTEGERS.

    `content` is what stands behind the dimensions; of a compressed matrix, behind the token.
    """

    def __init__(self, kind: str, shape: tuple[int, ...], content: bytes) -> None:
        self.kind, self.shape, self.content = kind, shape, content
        self.ndim = len(shape)


def read_raw(stream: io.BufferedReader) -> RawValue:
    """Read the binary value at the stream's position. Raises one of DAMAGE."""
    kind, shape, size, header = _read_head(stream)
    if kind == INTEGERS:
        return _integers(shape[0], take(stream, size))
    return RawValue(kind, shape, header + take(stream, size))


def read_shape(stream: io.BufferedReader) -> tuple[int, ...]:
    """The shape of the binary value at the stream's position, whose elements are not read. Raises one of DAMAGE."""
    return _read_head(stream)[1]


def read_raw_integers(stream: BinaryIO) -> RawValue:
    r"""The binary form of vector<int32>, after `\0B`: sized count, sized elements."""
    count = _sized_int(stream)
    return _integers(count, take(stream, 5 * count))


def _integers(count: int, content: bytes) -> RawValue:
    if content[::5].count(4) != count:
        raise ValueError("expected a vector of sized int32")
    return RawValue(INTEGERS, (count,), content)


def _read_head(stream: io.BufferedReader) -> tuple[str, tuple[int, ...], int, bytes]:
    """What stands before a value's elements: its kind, shape, bytes of elements, and the header that is part of the content."""
    if take(stream, 2) != b"\0B":
        raise ValueError("expected \\0B before a binary value")
    if stream.peek(1)[:1] == b"\4":
        count = _sized_int(stream)
        return INTEGERS, (count,), 5 * count, b""
    token = b""
    while len(token) < 4 and not token.endswith(b" "):
        token += take(stream, 1)
    kind = token[:-1].decode("ascii", "replace")
    if kind in COMPRESSED:
        header = take(stream, COMPRESSED_HEADER.size)
        _, _, rows, cols = COMPRESSED_HEADER.unpack(header)
        if rows < 0 or cols < 0 or (rows == 0) != (cols == 0):
            raise ValueError(f"a matrix of {rows} x {cols}")
        a_column, an_element = COMPRESSED[kind]
        return kind, (rows, cols), cols * (a_column + rows * an_element), header
    if kind not in ("FM", "DM", "FV", "DV"):
        raise ValueError(f"expected a matrix or vector, found {token!r}")
    dims = [_sized_int(stream) for _ in range(2 if kind[1] == "M" else 1)]
    if min(dims) < 0 or (min(dims) == 0) != (max(dims) == 0):
        raise ValueError(f"dimensions {dims}")
    return kind, tuple(dims), dims[0] * dims[-1] ** (len(dims) - 1) * (4 if kind[0] == "F" else 8), b""


def _sized_int(stream: BinaryIO) -> int:
    if take(stream, 1) != b"\4":
        raise ValueError("expected a sized int32")
    return int(struct.unpack("<i", take(stream, 4))[0])
