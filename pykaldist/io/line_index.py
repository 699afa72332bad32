"""The index of a two-column text file: the lines of a table of millions of utterances stay in the file, and are read when asked for.

In memory are a hash of each key and where its line begins, 16 bytes a line; a dictionary of the strings takes 250 and more. A line is found
by bisection of the hashes. The file is kept open: it may be replaced meanwhile, and what is read is what it was. A list of some of a
table's keys, `Keys`, takes 8 bytes each.
"""

from __future__ import annotations

import itertools
import os
import shutil
import stat
import tempfile
from array import array
from bisect import bisect_left
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from pathlib import Path
from typing import IO, Any, TypeVar, overload

import numpy as np

from pykaldist.errors import UserError, named, to_utf8
from pykaldist.io.scratch import explain_full_disk, nameless

T = TypeVar("T")

BLOCK = 1 << 18  # bytes that are read together
LINE = 256  # bytes that are read of a line at first


def table_entry(line: str, path: str | os.PathLike[str], number: int | None = None) -> tuple[str, str]:
    """The key and the value of a line of a table; raises UserError for an empty line, with its number where it is given."""
    fields = line.split(maxsplit=1)
    if not fields:
        raise UserError(f"{os.fspath(path)}{'' if number is None else f', line {number}'}: empty line; remove it.")
    return fields[0], fields[1].strip() if len(fields) > 1 else ""


def lines_of(fd: int) -> Iterator[tuple[int, bytes]]:
    """Iterate over the lines of an open file without their ends, and where they begin; where the file is read does not change."""
    rest, begin = b"", 0
    while block := os.pread(fd, BLOCK, begin + len(rest)):
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            yield begin, line
            begin += len(line) + 1
    if rest:
        yield begin, rest


def text_lines(path: str | os.PathLike[str]) -> Iterator[str]:
    """Iterate over the lines of a text file without their ends; raises UserError where it cannot be read, or is not UTF-8."""
    with named(path), open(path, "rb") as stream:
        for begin, line in lines_of(stream.fileno()):
            yield _text(line, begin, path)


def table_entries(path: str | os.PathLike[str]) -> Iterator[tuple[str, str]]:
    """Iterate over the entries of a table; raises UserError where it cannot be read, is not UTF-8, or has an empty line.

    Whether a key is repeated is not looked at.
    """
    return (table_entry(line, path, number) for number, line in enumerate(text_lines(path), 1))


def _text(line: bytes, begin: int, path: str | os.PathLike[str]) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{os.fspath(path)} is not UTF-8 text (byte {begin + error.start}); {to_utf8(path)}.") from error


class LineIndex(Mapping[str, str]):
    """A two-column text file (`key value with spaces`) as a mapping in file order.

    Raises UserError where it cannot be read, is not UTF-8, or has an empty line or a repeated key, and what `check` raises for a key and a
    value.
    """

    def __init__(self, path: str | os.PathLike[str], check: Callable[[str, str], object] | None = None,
                 stream: IO[bytes] | None = None) -> None:
        self.path = Path(path)
        with named(path):
            self._stream = _regular(stream or open(path, "rb"))  # noqa: SIM115  # it stays open as long as the index is there
        hashes, starts = array("q"), array("q")
        for number, (start, line) in enumerate(self._lines(), 1):
            key, value = table_entry(line, path, number)
            if check is not None:
                check(key, value)
            hashes.append(hash(key))
            starts.append(start)
        self._hashes, self._starts = hashes, starts  # arrays, whose items are Python's own numbers: bisection is fastest among these
        if not hashes:
            return
        found, order = np.frombuffer(hashes, np.int64), np.argsort(np.frombuffer(hashes, np.int64), kind="stable")
        for values in (found, np.frombuffer(starts, np.int64)):
            values[:] = values[order]
        if (found[1:] == found[:-1]).any():
            self._check_keys()

    @classmethod
    def of(cls, entries: Iterable[tuple[str, str]], folder: Path, origin: Path) -> LineIndex:
        """An index of entries, which lie in a nameless file in `folder`; what is wrong with them is said of `origin`."""
        stream = nameless(folder)
        for key, value in entries:
            with explain_full_disk(folder):
                stream.write(f"{key} {value}\n".encode())
        with explain_full_disk(folder):
            stream.flush()
        return cls(origin, stream=stream)

    def chosen(self, wanted: Callable[[str], bool]) -> Keys:
        """The keys that are wanted, in the order of the file."""
        return Keys(self, array("q", (begin for begin, line in self._lines() if wanted(table_entry(line, self.path)[0]))))

    def _lines(self) -> Iterator[tuple[int, str]]:
        """Iterate over the lines without their ends, and where they begin in the file."""
        return ((begin, _text(line, begin, self.path)) for begin, line in lines_of(self._stream.fileno()))

    def _entry(self, begin: int) -> tuple[str, str]:
        """The key and the value of the line that begins there."""
        line, size = b"", LINE
        while b"\n" not in line and (more := os.pread(self._stream.fileno(), size, begin + len(line))):
            line, size = line + more, 2 * size
        return table_entry(_text(line.partition(b"\n")[0], begin, self.path), self.path)

    def _check_keys(self) -> None:
        """Check that no key is there twice."""
        for _, places in itertools.groupby(range(len(self)), key=self._hashes.__getitem__):
            first, *others = places
            keys = {self._entry(self._starts[first])[0]} if others else set()
            for at in others:
                key = self._entry(self._starts[at])[0]
                if key in keys:
                    number = next(number for number, (begin, _) in enumerate(self._lines(), 1) if begin == self._starts[at])
                    raise UserError(f"{self.path}, line {number}: {key} appears twice; keep one.")
                keys.add(key)

    def _find(self, key: str) -> tuple[int, str]:
        """Where the line of a key begins, and its value; raises KeyError where there is none."""
        wanted = hash(key)
        for at in range(bisect_left(self._hashes, wanted), len(self._hashes)):
            if self._hashes[at] != wanted:
                break
            found, value = self._entry(self._starts[at])
            if found == key:
                return self._starts[at], value
        raise KeyError(key)

    def __getitem__(self, key: str) -> str:
        return self._find(key)[1]

    def __iter__(self) -> Iterator[str]:
        return (table_entry(line, self.path)[0] for _, line in self._lines())

    def __len__(self) -> int:
        return len(self._hashes)

    def items(self) -> ItemsView[str, str]:
        return _Items(self)

    def values(self) -> ValuesView[str]:
        return _Values(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return LineIndex, (self.path,)


class ParsedLines(Mapping[str, T]):
    """A table's values, each made of its line when it is asked for, by `parse(key, rest of the line)`."""

    def __init__(self, lines: Mapping[str, str], parse: Callable[[str, str], T]) -> None:
        self._lines, self._parse = lines, parse

    def __getitem__(self, key: str) -> T:
        return self._parse(key, self._lines[key])

    def __contains__(self, key: object) -> bool:
        return key in self._lines

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)

    def items(self) -> ItemsView[str, T]:
        return _ParsedItems(self)

    def values(self) -> ValuesView[T]:
        return _ParsedValues(self)


class _ParsedItems(ItemsView[str, T]):
    _mapping: ParsedLines[T]

    def __iter__(self) -> Iterator[tuple[str, T]]:
        return ((key, self._mapping._parse(key, line)) for key, line in self._mapping._lines.items())


class _ParsedValues(ValuesView[T]):
    _mapping: ParsedLines[T]

    def __iter__(self) -> Iterator[T]:
        return (self._mapping._parse(key, line) for key, line in self._mapping._lines.items())


class Keys(Sequence[str]):
    """Some of the keys of an index, in the order of its file, where they stay; `begins` says where their lines begin."""

    def __init__(self, index: LineIndex, begins: array[int]) -> None:
        self._index, self._begins = index, begins

    def __len__(self) -> int:
        return len(self._begins)

    @overload
    def __getitem__(self, number: int) -> str: ...

    @overload
    def __getitem__(self, number: slice) -> Keys: ...

    def __getitem__(self, number: int | slice) -> str | Keys:
        if isinstance(number, slice):
            return Keys(self._index, self._begins[number])
        return self._index._entry(self._begins[number])[0]

    def __contains__(self, key: object) -> bool:
        try:
            begin = self._index._find(str(key))[0]
        except KeyError:
            return False
        at = bisect_left(self._begins, begin)
        return at < len(self._begins) and self._begins[at] == begin


class _Items(ItemsView[str, str]):
    _mapping: LineIndex

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return (table_entry(line, self._mapping.path) for _, line in self._mapping._lines())


class _Values(ValuesView[str]):
    _mapping: LineIndex

    def __iter__(self) -> Iterator[str]:
        return (table_entry(line, self._mapping.path)[1] for _, line in self._mapping._lines())


def _regular(stream: IO[bytes]) -> IO[bytes]:
    """The stream, or a nameless copy of what it has where it is a pipe, which is read but once."""
    if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        return stream
    with stream:
        copy = tempfile.TemporaryFile()  # noqa: SIM115  # the index keeps it
        shutil.copyfileobj(stream, copy)
        copy.flush()
        return copy
