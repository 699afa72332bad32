"""Arrays, and values by name, larger than memory: they lie in nameless files, which no crash leaves behind.

Arrays are mapped, so that pages come when used, and ordinary numpy arrays. `release` lets go of the pages of a part that is done with (they
stay in the file, and come back when they are used again), `prefetch` asks for those of a part that will be used. On arrays that lie in
memory both do nothing.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO, TypeVar, cast

import numpy as np

from pykaldist.errors import UserError

T = TypeVar("T")
_FOLIO = 1 << 21  # bytes; whoever reads a page of a file gets those around it, too, up to the whole folio that the page cache has


class RowWriter:
    """Collects the rows of an array, a few at a time: in memory up to `limit` rows, beyond that in a nameless file in `folder`.

    Without a folder they stay in memory.
    """

    def __init__(self, limit: int, folder: Path | None = None) -> None:
        self.limit, self.folder, self.count = limit, folder, 0
        self._parts: list[np.ndarray] = []
        self._stream: IO[bytes] | None = None

    def append(self, rows: np.ndarray) -> None:
        """Add rows, which have the type and the width of those before."""
        self.count += len(rows)
        self._parts.append(rows)
        if self.folder is not None and self.count > self.limit:
            if self._stream is None:
                self._stream = nameless(self.folder)
            with explain_full_disk(self.folder, sum(part.nbytes for part in self._parts)):
                for part in self._parts:
                    self._stream.write(np.ascontiguousarray(part).data)
            self._parts = [np.zeros_like(rows[:0])]

    def array(self) -> np.ndarray:
        """All rows; nothing may be added any more."""
        if self._stream is None or self.folder is None:
            return np.concatenate(self._parts) if self._parts else np.zeros(0)
        with explain_full_disk(self.folder):
            self._stream.flush()
        return _mapped(self._stream, (self.count, *self._parts[0].shape[1:]), self._parts[0].dtype)


class StoredValues(Mapping[str, T]):
    """Values by their names, in the order in which they came; they lie in a nameless file until they are asked for.

    The file is in `folder`, by default that of temporary files: `write` puts a value there, `read` makes it of its bytes again. In memory
    a name takes 200 bytes.
    """

    def __init__(self, read: Callable[[bytes], T], write: Callable[[IO[bytes], T], object], folder: Path | None = None) -> None:
        self._read, self._write, self._folder = read, write, folder or Path(tempfile.gettempdir())
        self._stream: IO[bytes] | None = None
        self._places: dict[str, tuple[int, int]] = {}  # first byte, number of bytes

    def add(self, name: str, value: T) -> None:
        """Add, or replace, a value."""
        if self._stream is None:
            self._stream = nameless(self._folder)
        begin = self._stream.tell()
        with explain_full_disk(self._folder):
            self._write(self._stream, value)
            self._stream.flush()
        self._places[name] = begin, self._stream.tell() - begin

    def __getitem__(self, name: str) -> T:
        begin, size = self._places[name]
        return self._read(os.pread(cast("IO[bytes]", self._stream).fileno(), size, begin))

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def scratch_array(shape: tuple[int, ...], dtype: np.dtype | type, limit: int, folder: Path | None = None) -> np.ndarray:
    """An array of zeros: in memory with up to `limit` rows, or without a folder; else in a nameless file in `folder`."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if folder is None or shape[0] <= limit or not size:
        return np.zeros(shape, dtype)
    stream = nameless(folder)
    with explain_full_disk(folder, size):
        os.posix_fallocate(stream.fileno(), 0, size)  # so that a full disk is found here, not when a page is written
    return _mapped(stream, shape, np.dtype(dtype))


def prefetch(array: np.ndarray) -> None:
    """Have the pages of a part of a scratch array read, while something else goes on."""
    _advise(array, mmap.MADV_WILLNEED)


def release(array: np.ndarray) -> None:
    """Let go of the memory that a part of a scratch array has."""
    _advise(array, mmap.MADV_DONTNEED, _FOLIO)


def in_parts(rows: Sequence[slice], *arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """Iterate over parts of arrays: some rows of all of them at a time.

    Memory lets go of a part when the next one is asked for, which is read meanwhile.
    """
    for now, ahead in pairwise([*rows, slice(0, 0)]):
        for array in arrays:
            prefetch(array[ahead])
        yield tuple(array[now] for array in arrays)
        for array in arrays:
            release(array[now])


def slices(count: int, step: int) -> list[slice]:
    """The rows 0 to `count` - 1 as slices of `step` of them, the last one of what is left."""
    return [slice(start, min(start + step, count)) for start in range(0, count, step)]


def _advise(array: np.ndarray, advice: int, around: int = mmap.PAGESIZE) -> None:
    owner: object = array
    while isinstance(owner, np.ndarray):
        whole, owner = owner, owner.base
    owner = owner.obj if isinstance(owner, memoryview) else owner
    if isinstance(owner, mmap.mmap) and array.size:
        first = array.ctypes.data - whole.ctypes.data
        start, end = first - first % around, first + array.nbytes
        owner.madvise(advice, start, min(end + -end % around, len(owner)) - start)


def nameless(folder: Path) -> IO[bytes]:
    """A new file without a name, on the disk of a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    return cast("IO[bytes]", tempfile.TemporaryFile(dir=folder))


def _mapped(stream: IO[bytes], shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """The array that a file holds; the mapping keeps the file when the stream is closed."""
    with stream:
        mapping = mmap.mmap(stream.fileno(), int(np.prod(shape)) * dtype.itemsize)
    return np.frombuffer(mapping, dtype).reshape(shape)


@contextlib.contextmanager
def explain_full_disk(folder: Path, size: int = 0) -> Iterator[None]:
    """Say in which folder there is no room for `size` more bytes, where there is none."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{folder}: no room for {size / 1e6:.1f} MB more of what the stage keeps there while it runs ({error.strerror}); "
                        "make room on that disk, or choose another folder.") from error
