"""Checksums of an archive's entries, in `<archive>.sums` beside it: damage that still parses is found when an entry is read.

The file is a numpy array, an entry a row in the order of the archive: where its value begins, how many bytes it has, and their CRC-32. An
archive without such a file, as Kaldi writes it, is read unchecked.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np

from pykaldist.errors import UserError
from pykaldist.io.archive import numpy_damage, reason, take
from pykaldist.io.npy import save_array

ROW = np.dtype([("offset", "<i8"), ("length", "<i8"), ("crc", "<u4")])


SUFFIX = ".sums"


def sums_path(archive: str | os.PathLike[str]) -> Path:
    """The file with the checksums of an archive."""
    return Path(f"{os.fspath(archive)}{SUFFIX}")


class Sums:
    """The checksums of one archive's entries."""

    def __init__(self, rows: np.ndarray, path: Path) -> None:
        self._rows, self.path = rows, path

    def __len__(self) -> int:
        return len(self._rows)

    @classmethod
    def of(cls, archive: str) -> Sums | None:
        """Read the checksums of an archive; None where there are none. Raises UserError where their file is damaged."""
        path = sums_path(archive)
        if not os.path.isfile(path):
            return None
        try:
            rows = np.load(path, allow_pickle=False)
            if rows.dtype != ROW or rows.ndim != 1 or (np.diff(rows["offset"]) <= 0).any():
                raise ValueError(f"an array of {rows.dtype}")
        except numpy_damage() as error:
            raise UserError(f"{path} is damaged ({reason(error)}); make {archive} again, or remove it to read that unchecked.") from error
        return cls(rows, path)

    def read(self, stream: BinaryIO, offset: int) -> bytes:
        """Read the bytes of the entry at `offset`; raises ValueError where they are not those that were written."""
        row = int(np.searchsorted(self._rows["offset"], offset))
        if row == len(self._rows) or int(self._rows["offset"][row]) != offset:
            raise ValueError(f"by {self.path.name} no entry begins there")
        stream.seek(offset)
        content = take(stream, int(self._rows["length"][row]))
        if zlib.crc32(content) != int(self._rows["crc"][row]):
            raise ValueError(f"its checksum is not that of {self.path.name}: the archive was damaged or replaced")
        return content


class SumsWriter:
    """Collects the checksums of an archive that is being written; `write` leaves them beside it."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, int]] = []

    def add(self, offset: int, content: bytes) -> None:
        """Note an entry whose value begins at `offset`."""
        self._rows.append((offset, len(content), zlib.crc32(content)))

    def write(self, archive: str | os.PathLike[str]) -> None:
        """Write the file beside the archive."""
        save_array(sums_path(archive), np.array(self._rows, ROW))
