"""Texts that language models are made of: files, gzipped or not, and standard input. It needs no numpy, so that programs start fast."""

from __future__ import annotations

import gzip
import io
import os
import sys
import zlib
from collections.abc import Iterator
from typing import cast

from pykaldist.errors import UserError, named, to_utf8
from pykaldist.progress import Progress

_BLOCK = 1 << 22  # bytes that are read at a time
_MB = 1_000_000


def blocks_of_lines(path: str | os.PathLike[str]) -> Iterator[list[bytes]]:
    """The lines of a text file with their ends, some million bytes at a time; gzipped or not, of standard input for `-`.

    Raises UserError where it cannot be read, or is not UTF-8.
    """
    before = 0  # bytes of the blocks before
    given = os.fspath(path) != "-"
    size = os.path.getsize(path) if given and os.path.isfile(path) else 0  # a pipe has none
    try:
        with named(path), open(path, "rb") if given else sys.stdin.buffer as raw, \
                Progress(f"reading {os.path.basename(path) if given else 'standard input'}", size // _MB, "MB") as bar:
            packed = cast(io.BufferedReader, raw).peek(2)[:2] == b"\x1f\x8b"
            stream = io.BufferedReader(cast(io.RawIOBase, gzip.GzipFile(fileobj=raw))) if packed else raw
            while lines := stream.readlines(_BLOCK):
                text = b"".join(lines)
                text.decode("utf-8")
                yield lines
                before += len(text)
                bar.update((raw.tell() if size else before) // _MB - bar.count)
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text (byte {before + error.start}); {to_utf8(path)}.") from error
    except EOFError as error:
        raise UserError(f"{path} is truncated; make it or fetch it again.") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path} is no readable gzip file; make it or fetch it again.") from error


def lines_of(path: str | os.PathLike[str]) -> Iterator[str]:
    """The lines of a text file one after the other, without their ends, as `blocks_of_lines` reads them."""
    return (line.decode("utf-8").rstrip("\r\n") for lines in blocks_of_lines(path) for line in lines)


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The content of a file, unpacked where it is gzipped; of standard input for `-`. Raises UserError for a damaged gzip file."""
    if os.fspath(path) == "-":
        content = sys.stdin.buffer.read()
    else:
        with open(path, "rb") as stream:
            content = stream.read()
    if content[:2] != b"\x1f\x8b":
        return content
    try:
        return gzip.decompress(content)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path} is no readable gzip file; make it or fetch it again.") from error


def read_text(path: str | os.PathLike[str]) -> str:
    """The text of a file, gzipped or not; of standard input for `-`. Raises UserError where it is not UTF-8."""
    try:
        return read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text (byte {error.start}); {to_utf8(path)}.") from error
