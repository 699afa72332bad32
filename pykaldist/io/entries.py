"""An archive's entries: keys, the streams behind them, and what reading bad bytes raises; what the values are is in other files.

It needs no numpy, so that a program which looks at no numbers (feat-to-len) starts fast.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, TypeVar, cast

from pykaldist.errors import AGAIN, UserError, named

T = TypeVar("T")

_CHUNK = 1 << 24
_LONGEST_KEY = 4096
_LOCATION = re.compile(r"(.+?)(?::(\d+))?(?:\[([\d:,]*)\])?", re.DOTALL)
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
                        f"({reason(error)}); {AGAIN}.") from error


def location(where: str) -> tuple[str, int, str]:
    """The parts of an scp entry, `path:offset[first:last,first:last]`; the offset is 0, and the range empty, where they are not given."""
    match = _LOCATION.fullmatch(where)
    if match is None:
        raise ValueError("expected path:offset")
    return match[1], int(match[2] or 0), match[3] or ""


def cut(value: Any, ranges: str) -> Any:
    """The part of an array that an scp entry's ranges choose: of rows and columns, the last included. Raises ValueError for others."""
    for axis, part in enumerate(ranges.split(",")):
        if part not in ("", ":"):
            first, last = (int(n) for n in part.split(":"))
            if axis >= value.ndim or not first <= last < value.shape[axis]:
                raise ValueError(f"range [{ranges}] of an array of shape {value.shape}")
            value = value[(slice(None),) * axis + (slice(first, last + 1),)]
    return value
