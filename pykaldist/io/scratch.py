"""Arrays, and values by name, larger than memory: they lie in nameless files, which no crash leaves behind.

Arrays are mapped, so that pages come when used, and ordinary numpy arrays. `release` lets go of the pages of a part that is done with (they
stay in the file, and come back when they are used again), `prefetch` asks for those of a part that will be used. On arrays that lie in
memory both do nothing.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import tempfile
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO, TypeVar, cast

import numpy as np

from pykaldist.errors import UserError

T = TypeVar("T")
_NAME_LENGTH = 4  # bytes of the number before a name that says how long it is
MOST_READ = 1 << 28  # bytes of the arrays of a store that stay mapped because they were read
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

    The file is in `folder`, by default that of temporary files: `write` puts a value there, `read` makes it of its bytes again. Names lie
    there, too. In memory are 40 bytes a name: its hash, where it lies, and its place in a table of hashes that is searched from where the
    hash points to on.
    """

    def __init__(self, read: Callable[[bytes], T], write: Callable[[IO[bytes], T], object], folder: Path | None = None) -> None:
        self._read, self._write, self._folder = read, write, folder or Path(tempfile.gettempdir())
        self._stream: IO[bytes] | None = None
        self._hashes, self._begins, self._sizes = array("q"), array("q"), array("q")  # of each name: the last two are of its bytes
        self._table = array("q", [-1] * 8)  # numbers of names; -1 where there is none

    def add(self, name: str, value: T) -> None:
        """Add, or replace, a value."""
        if self._stream is None:
            self._stream = nameless(self._folder)
        begin = self._stream.tell()
        with explain_full_disk(self._folder):
            self._stream.write(_head(name))
            self._write(self._stream, value)
            self._stream.flush()
        size = self._stream.tell() - begin
        place, number = self._find(name)
        if number >= 0:
            self._begins[number], self._sizes[number] = begin, size
            return
        self._table[place] = len(self._hashes)
        for column, item in ((self._hashes, hash(name)), (self._begins, begin), (self._sizes, size)):
            column.append(item)
        if 3 * len(self._hashes) > 2 * len(self._table):
            self._table = array("q", [-1]) * (2 * len(self._table))
            for again, found in enumerate(self._hashes):
                self._table[next(place for place in self._places(found) if self._table[place] < 0)] = again

    def _places(self, key: int) -> Iterator[int]:
        """The places of the table in which a name of this hash may be, in the order in which they are filled."""
        size = len(self._table)
        return (place % size for place in itertools.count(key % size))

    def _find(self, name: str) -> tuple[int, int]:
        """The place in the table, and the number, of a name; the place where it would be, and -1, where it is not there."""
        key, head = hash(name), _head(name)
        for place in self._places(key):
            number = self._table[place]
            if number < 0 or (self._hashes[number] == key and self._bytes(number, 0, len(head)) == head):
                return place, number
        raise AssertionError("the table has no free place")

    def _bytes(self, number: int, begin: int, size: int) -> bytes:
        """Bytes of what lies in the file of a name, from `begin` on."""
        return os.pread(cast("IO[bytes]", self._stream).fileno(), size, self._begins[number] + begin)

    def __getitem__(self, name: str) -> T:
        _, number = self._find(name)
        if number < 0:
            raise KeyError(name)
        begin = len(_head(name))
        return self._read(self._bytes(number, begin, self._sizes[number] - begin))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._find(name)[1] >= 0

    def __iter__(self) -> Iterator[str]:
        for number in range(len(self)):
            length = int.from_bytes(self._bytes(number, 0, _NAME_LENGTH), "little")
            yield self._bytes(number, _NAME_LENGTH, length).decode("utf-8")

    def __len__(self) -> int:
        return len(self._hashes)


def stored_integers(folder: Path) -> StoredValues[np.ndarray]:
    """Make a place for vectors of int32 by their names, in a nameless file in `folder`; what is read of it is not to be changed."""
    return StoredValues(lambda content: np.frombuffer(content, np.int32),
                        lambda stream, numbers: stream.write(np.ascontiguousarray(numbers, np.int32).data), folder)


def _head(name: str) -> bytes:
    """The bytes that a file of values has before a value: the length of its name, and the name."""
    key = name.encode("utf-8")
    return len(key).to_bytes(_NAME_LENGTH, "little") + key


def scratch_array(shape: tuple[int, ...], dtype: np.dtype | type, limit: int, folder: Path | None = None) -> np.ndarray:
    """An array of zeros: in memory with up to `limit` rows, or without a folder; else in a nameless file in `folder`."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if folder is None or shape[0] <= limit or not size:
        return np.zeros(shape, dtype)
    stream = nameless(folder)
    with explain_full_disk(folder, size):
        os.posix_fallocate(stream.fileno(), 0, size)  # so that a full disk is found here, not when a page is written
    return _mapped(stream, shape, np.dtype(dtype))


def block_array(shape: tuple[int, ...], dtype: np.dtype | type) -> np.ndarray:
    """An array of zeros whose memory goes back to the system as soon as nobody uses it.

    malloc keeps some of the memory of large arrays whose sizes differ, so that memory would grow with the number of blocks. The mapping is
    shared: `release` loses nothing of it. Raises MemoryError where there is none.
    """
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if not size:
        return np.zeros(shape, dtype)
    try:
        mapping = mmap.mmap(-1, size)
    except OSError as error:
        raise MemoryError(f"{size / 1e6:.1f} MB") from error
    return np.frombuffer(mapping, dtype).reshape(shape)


def prefetch(array: np.ndarray) -> None:
    """Have the pages of a part of a scratch array read, while something else goes on."""
    _advise(array, mmap.MADV_WILLNEED)


def release(array: np.ndarray) -> None:
    """Let go of the memory that a part of a scratch array has."""
    _advise(array, mmap.MADV_DONTNEED, _FOLIO)


class PagesRead:
    """A record of the parts of memory-mapped arrays that were read. Their memory is let go of when they are more than MOST_READ bytes.

    A part is what has a folio of the largest array, or somewhat less, but a row at least: where rows are large and differ, the limit is one
    of the mean. The page cache keeps what it has room for.
    """

    def __init__(self, arrays: Sequence[np.ndarray], rows: int) -> None:
        self._arrays, self._rows = [array for array in arrays if array.size], max(rows, 1)
        largest, size = max((array.nbytes for array in self._arrays), default=0), sum(array.nbytes for array in self._arrays)
        parts = max(1, min(-(-largest // _FOLIO), self._rows))
        self._read, self._most = np.zeros(parts, bool), parts if size <= MOST_READ else max(1, parts * MOST_READ // size)

    def note(self, rows: np.ndarray) -> None:
        """Note that these rows are going to be read."""
        self._read[rows.astype(np.int64, copy=False) * len(self._read) // self._rows] = True
        if np.count_nonzero(self._read) > self._most:
            self._read[:] = False
            for whole in self._arrays:
                release(whole)

    def passed(self, rows: slice) -> None:
        """Let go of the memory of rows, of arrays that all have as many, which were read one behind the other."""
        for whole in self._arrays:
            release(whole[rows])


def in_parts(rows: Sequence[slice], *arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """Iterate over parts of arrays: some rows of all of them at a time.

    Memory lets go of a part when the next one is asked for, which is read meanwhile.
    """
    for now, ahead in pairwise([*rows, slice(0, 0)]):
        for rows_of in arrays:
            prefetch(rows_of[ahead])
        yield tuple(rows_of[now] for rows_of in arrays)
        for rows_of in arrays:
            release(rows_of[now])


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
