"""Arrays of which files, some of them remote, hold the rows; what is asked for is read then (io/remote.py)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pykaldist.errors import UserError, named
from pykaldist.frames.mapped import aligned_starts
from pykaldist.io.remote import PartCache, is_remote


class RemoteArray:
    """An array whose rows lie in files of so many rows each, laid out as `mapped_together` does it. Rows of one file are read together.

    `versions` name what each file has: parts that the cache keeps of one are not taken for those of another.
    """

    def __init__(self, files: Sequence[tuple[Path | str, int]], versions: Sequence[str], dtype: np.dtype[Any], row: tuple[int, ...],
                 cache: PartCache) -> None:
        self._files, self._versions, self.dtype, self._row, self._cache = files, versions, dtype, row, cache
        self._starts = aligned_starts([rows for _, rows in files])
        self.shape = (int(self._starts[-1]), *row)
        self.itemsize = dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, chosen: int | slice | np.ndarray) -> np.ndarray:
        """A row, the rows of a slice, or those of ascending numbers."""
        if isinstance(chosen, slice):
            first, end, _ = chosen.indices(len(self))
            return self._read(first, max(end, first))
        if isinstance(chosen, np.ndarray):
            runs = np.split(chosen, np.flatnonzero(np.diff(chosen) != 1) + 1)
            return np.concatenate([self._read(0, 0), *(self._read(int(run[0]), int(run[-1]) + 1) for run in runs if len(run))])
        return self._read(int(chosen), int(chosen) + 1)[0]

    def _read(self, first: int, end: int) -> np.ndarray:
        if first == end:
            return np.zeros((0, *self._row), self.dtype)
        number = int(np.searchsorted(self._starts, first, side="right")) - 1
        place, rows = self._files[number]
        width, start = self.itemsize * int(np.prod(self._row)), int(self._starts[number])
        assert end <= start + rows, "rows of one file are read together"
        begin, stop = (first - start) * width, (end - start) * width
        if is_remote(place):
            content = self._cache.read(str(place), rows * width, begin, stop, self._versions[number])
        else:
            with named(place), open(place, "rb") as stream:
                stream.seek(begin)
                content = stream.read(stop - begin)
        if len(content) != stop - begin:
            raise UserError(f"{place} has fewer than the {rows * width} bytes that its manifest says; pack the store again "
                            "(steps/nnet/pack.sh).")
        return np.frombuffer(bytearray(content), self.dtype).reshape(-1, *self._row)
