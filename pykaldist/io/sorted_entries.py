"""Entries of tables, (key, value) in the order of the keys, gone through as streams: tables of many million lines need no more memory.

The order is that of the keys as Python's strings, which is also that of their bytes in UTF-8, the C locale's.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator
from operator import itemgetter
from pathlib import Path

from pykaldist.io.line_index import lines_of
from pykaldist.io.scratch import explain_full_disk, nameless

Entry = tuple[str, str]

RUN = 100_000  # entries that are sorted in memory
_TOGETHER = 1000  # entries that are written together


class StoredEntries(Iterable[Entry]):
    """Entries in a nameless file in `folder`, to be gone through as often as one likes; neither key nor value has the end of a line."""

    def __init__(self, entries: Iterable[Entry], folder: Path) -> None:
        self._count = 0
        self._stream = nameless(folder)
        rest = iter(entries)
        while lines := [f"{key} {value}\n" for key, value in itertools.islice(rest, _TOGETHER)]:
            with explain_full_disk(folder):
                self._stream.write("".join(lines).encode())
            self._count += len(lines)
        with explain_full_disk(folder):
            self._stream.flush()

    def __iter__(self) -> Iterator[Entry]:
        for _, line in lines_of(self._stream.fileno()):
            key, _, value = line.decode("utf-8").partition(" ")
            yield key, value

    def __len__(self) -> int:
        return self._count

    def keys(self) -> Iterator[str]:
        """Iterate over the keys."""
        return map(itemgetter(0), self)


def in_order(entries: Iterable[Entry], folder: Path, run: int = RUN) -> Iterator[Entry]:
    """Sort entries by key; those of one key stay in their order.

    `run` of them at a time are sorted in memory, and wait in a nameless file in `folder` where there are more.
    """
    rest = iter(entries)
    runs: list[StoredEntries] = []
    while some := sorted(itertools.islice(rest, run), key=itemgetter(0)):
        if not runs and len(some) < run:
            yield from some
            return
        runs.append(StoredEntries(some, folder))
    yield from heapq.merge(*runs, key=itemgetter(0))


def matching(entries: Iterable[Entry], keys: Iterable[str]) -> Iterator[Entry]:
    """Iterate over those of sorted entries whose key is among sorted keys."""
    others = iter(keys)
    other = next(others, None)
    for key, value in entries:
        while other is not None and other < key:
            other = next(others, None)
        if key == other:
            yield key, value


def first_of_each(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Iterate over sorted entries, of those with one key over the first."""
    return (next(group) for _, group in itertools.groupby(entries, key=itemgetter(0)))


def only_in_one(one: Iterable[str], other: Iterable[str]) -> tuple[tuple[int, str] | None, tuple[int, str] | None]:
    """The names that only one of two sorted lists has: their number and the first of them, for each list; None where there are none.

    A list has each name once.
    """
    ours, theirs = iter(one), iter(other)
    a, b, missing, extra = next(ours, None), next(theirs, None), 0, 0
    first_missing = first_extra = ""
    while a is not None or b is not None:
        if a == b:
            a, b = next(ours, None), next(theirs, None)
        elif b is None or (a is not None and a < b):
            missing, first_missing, a = missing + 1, first_missing or a or "", next(ours, None)
        else:
            extra, first_extra, b = extra + 1, first_extra or b, next(theirs, None)
    return (missing, first_missing) if missing else None, (extra, first_extra) if extra else None
