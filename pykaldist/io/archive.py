r"""Reader of the entries of a Kaldi archive, binary or text: matrices, vectors, integer vectors.

An entry is a key, a space, and a value: `\0B` and the binary form, or text up to the end of the line (`1 2 3`, `[ 1 2.5 ]`) or, for a
matrix, to the closing bracket. What a file says about lengths is not believed: memory grows only with what is read.
"""

from __future__ import annotations

import gzip
import io
import os
import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, TypeVar, cast

import numpy as np

from pykaldist.errors import UserError, named
from pykaldist.io.compressed import KINDS, read_compressed

T = TypeVar("T")

_CHUNK = 1 << 24
_LONGEST_KEY = 4096
_SIZED_INT = np.dtype([("size", "i1"), ("value", "<i4")])
#: what reading bad bytes raises
DAMAGE = (ValueError, struct.error, EOFError, gzip.BadGzipFile, zlib.error, OverflowError, MemoryError)


def numpy_damage() -> tuple[type[Exception], ...]:
    """What numpy.load raises of bad bytes; asked for when something was raised, for programs are not to wait for these modules."""
    import tokenize
    import zipfile

    return (*DAMAGE, OSError, KeyError, SyntaxError, RuntimeError, tokenize.TokenError, zipfile.BadZipFile)


def reason(error: BaseException) -> str:
    """The message of an error, short enough for a sentence: libraries quote what they could not read."""
    said = " ".join(str(error).split()) or type(error).__name__
    return said if len(said) <= 100 else said[:97] + "..."


def open_archive(path: str | os.PathLike[str]) -> io.BufferedReader:
    """Open an archive, gzipped or not, for reading; `-` is standard input."""
    if str(path) == "-":
        return cast(io.BufferedReader, sys.stdin.buffer)
    if str(path).endswith(".gz"):
        return io.BufferedReader(cast(io.RawIOBase, gzip.open(path, "rb")))
    return open(path, "rb")


def take(stream: BinaryIO, count: int) -> bytes:
    """Read exactly `count` bytes; raises EOFError where there are fewer."""
    if count < 0:
        raise ValueError(f"a length of {count}")
    parts, left = [], count
    while left > 0:
        part = stream.read(min(left, _CHUNK))
        if not part:
            raise EOFError(f"expected {count} bytes, found {count - left}")
        parts.append(part)
        left -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def read_key(stream: io.BufferedReader) -> str | None:
    """Read the next key and the space behind it; None at the end of the archive. Raises ValueError where there is no key."""
    key = bytearray()
    while (byte := stream.peek(1)[:1]) not in (b"", b" ", b"\t", b"\n"):
        key += stream.read(1)
        if len(key) > _LONGEST_KEY or byte == b"\0":
            raise ValueError(f"expected a key and a space, found {bytes(key[:20])!r}")
    if not key and byte == b"":
        return None
    if not key or byte == b"":
        raise ValueError("a key without a value" if key else "expected a key, found white space")
    if byte != b"\n":  # there an empty vector ends
        stream.read(1)
    return key.decode("utf-8")


def read_entries(path: str | os.PathLike[str], read: Callable[[io.BufferedReader], T]) -> Iterator[tuple[str, T]]:
    """Iterate over the entries of an archive as pairs (key, value), where `read` makes the value from the stream behind the key.

    Raises UserError, naming file and entry, for damage.
    """
    key: str | None = None
    count = 0
    try:
        with named(path), open_archive(path) as stream:
            while (key := read_key(stream)) is not None:
                count += 1
                yield key, read(stream)
    except DAMAGE as error:
        raise UserError(f"{path} is no readable archive: entry {count + (key is None)}{f' ({key})' if key else ''} is damaged or truncated "
                        f"({reason(error)}); make it again.") from error


def read_value(stream: io.BufferedReader) -> np.ndarray:
    """Read the value at the stream's position: float32 or float64 matrix or vector, or int32 vector. Raises one of DAMAGE."""
    if stream.peek(1)[:1] == b"\0":
        if take(stream, 2) != b"\0B":
            raise ValueError("expected \\0B before a binary value")
        return _binary_value(stream)
    return _text_value(stream)


def read_int_vector(stream: BinaryIO) -> np.ndarray:
    r"""The binary form of vector<int32>, after `\0B`: sized count, sized elements."""
    if take(stream, 1) != b"\4":
        raise ValueError("expected a sized int32")
    count = struct.unpack("<i", take(stream, 4))[0]
    elements = np.frombuffer(take(stream, 5 * count), dtype=_SIZED_INT)
    if (elements["size"] != 4).any():
        raise ValueError("expected a vector of sized int32")
    return elements["value"].astype(np.int32)


def _binary_value(stream: io.BufferedReader) -> np.ndarray:
    if stream.peek(1)[:1] == b"\4":
        return read_int_vector(stream)
    token = b""
    while len(token) < 4 and not token.endswith(b" "):
        token += take(stream, 1)
    kind = token[:-1].decode("ascii", "replace")
    if kind in KINDS:
        return read_compressed(kind, lambda count: take(stream, count))
    if kind not in ("FM", "DM", "FV", "DV"):
        raise ValueError(f"expected a matrix or vector, found {token!r}")
    dims = [_sized_int(stream) for _ in range(2 if kind[1] == "M" else 1)]
    if min(dims) < 0 or (min(dims) == 0) != (max(dims) == 0):
        raise ValueError(f"dimensions {dims}")
    dtype = np.dtype("<f4" if kind[0] == "F" else "<f8")
    values = np.frombuffer(take(stream, int(np.prod(dims, dtype=object)) * dtype.itemsize), dtype=dtype)
    return values.reshape(dims).astype(dtype.newbyteorder("="))


def _sized_int(stream: BinaryIO) -> int:
    if take(stream, 1) != b"\4":
        raise ValueError("expected a sized int32")
    return int(struct.unpack("<i", take(stream, 4))[0])


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
