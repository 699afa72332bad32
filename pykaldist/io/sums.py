"""Checksums of an archive's entries, in `<archive>.sums` beside it: damage that still parses is found when an entry is read.

The file is a numpy array, an entry a row in the order of the archive: where its value begins, how many bytes it has, and their CRC-32. An
archive without such a file, as Kaldi writes it, is read unchecked.
"""

from __future__ import annotations

import contextlib
import io
import os
import struct
import zlib
from bisect import bisect_left
from collections.abc import Callable
from typing import BinaryIO, TypeVar, cast

from pykaldist.errors import UserError, named, quoted
from pykaldist.io.entries import DAMAGE, open_archive, reason, take

T = TypeVar("T")

COLUMNS = [("offset", "<i8"), ("length", "<i8"), ("crc", "<u4")]
SUFFIX = ".sums"
_ROW = struct.Struct("<qqI")


def sums_path(archive: str | os.PathLike[str]) -> str:
    """The file with the checksums of an archive."""
    return f"{os.fspath(archive)}{SUFFIX}"


def forget_sums(archive: str | os.PathLike[str]) -> None:
    """Remove the checksums of an older archive of that name."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(sums_path(archive))


class Sums:
    """The checksums of one archive's entries."""

    def __init__(self, rows: bytes, path: str) -> None:
        self._rows, self._count, self.path = rows, len(rows) // _ROW.size, path

    def __len__(self) -> int:
        return self._count

    @classmethod
    def of(cls, archive: str) -> Sums | None:
        """Read the checksums of an archive; None where there are none. Raises UserError where their file is damaged."""
        path = sums_path(archive)
        if not os.path.isfile(path):
            return None
        try:
            with open(path, "rb") as stream:
                content = stream.read()
            return cls(_rows_of(content), path)
        except (*DAMAGE, OSError) as error:
            raise UserError(f"{path} is damaged ({reason(error)}); make {archive} again, or read that unchecked: rm "
                            f"{quoted(path)}.") from error

    def read(self, stream: BinaryIO, offset: int) -> bytes:
        """Read the bytes of the entry at `offset`; raises ValueError where they are not those that were written."""
        number = bisect_left(range(self._count), offset, key=lambda i: self._row(i)[0])
        if number == self._count or self._row(number)[0] != offset:
            raise ValueError(f"by {os.path.basename(self.path)} no entry begins there")
        _, length, crc = self._row(number)
        stream.seek(offset)
        content = take(stream, length)
        if zlib.crc32(content) != crc:
            raise ValueError(f"its checksum is not that of {os.path.basename(self.path)}: the archive was damaged or replaced")
        return content

    def _row(self, number: int) -> tuple[int, int, int]:
        return cast("tuple[int, int, int]", _ROW.unpack_from(self._rows, _ROW.size * number))


def _rows_of(content: bytes) -> bytes:
    """The rows of a file of checksums; raises ValueError for another file."""
    begin = 10 + int.from_bytes(content[8:10], "little")
    header, rows = content[10:begin], content[begin:]
    expected = f"{{'descr': {COLUMNS}, 'fortran_order': False, 'shape': ({len(rows) // _ROW.size},), }}"
    if content[:8] != b"\x93NUMPY\1\0" or header.rstrip() != expected.encode() or len(rows) % _ROW.size:
        raise ValueError("no array of checksums")
    before = -1
    for offset, _, _ in _ROW.iter_unpack(rows):
        if offset <= before:
            raise ValueError(f"an entry at {offset} behind one at {before}")
        before = offset
    return rows


def read_at(path: str, offset: int, read: Callable[[io.BufferedReader], T], sums: dict[str, Sums | None]) -> T:
    """Read the value at a byte of an archive, checked where the archive has checksums; `sums` keeps these from one call to the next.

    Raises ValueError and the like (entries.DAMAGE) where there is none.
    """
    if path not in sums:
        sums[path] = Sums.of(path)
    known = sums[path]
    with named(path), open_archive(path) as stream:
        if known is not None:
            return read(checked(known, stream, offset))
        stream.seek(offset)
        return read(stream)


def checked(sums: Sums, stream: BinaryIO, offset: int) -> io.BufferedReader:
    """The bytes of the value at `offset` as a stream; raises ValueError where they are not those that were written."""
    return io.BufferedReader(cast(io.RawIOBase, io.BytesIO(sums.read(stream, offset))))


class SumsWriter:
    """Collects the checksums of an archive that is being written; `write` leaves them beside it."""

    def __init__(self) -> None:
        self._rows = bytearray()

    def add(self, offset: int, content: bytes) -> None:
        """Note an entry whose value begins at `offset`."""
        self._rows += _ROW.pack(offset, len(content), zlib.crc32(content))

    def write(self, archive: str | os.PathLike[str]) -> None:
        """Write the file beside the archive."""
        import numpy as np  # here and not above: programs that only read start faster without it

        from pykaldist.io.npy import save_array

        save_array(sums_path(archive), np.frombuffer(self._rows, COLUMNS))
