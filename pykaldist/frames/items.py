"""Items whose arrays are of different lengths, packed one behind the other into flat memory-mapped files.

    <array>.bin   the values of all items
    <unit>.npy    items + 1, int64: where each item begins in the arrays that count in this unit

A store of items says by a *layout* which arrays there are: the unit and the type of each, by name.
"""

from __future__ import annotations

import contextlib
import io
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from pykaldist.errors import UserError, named, of_the_machine
from pykaldist.frames.mapped import Sink, mapped
from pykaldist.io.atomic import atomic_open
from pykaldist.io.entries import numpy_damage, reason
from pykaldist.io.npy import save_array
from pykaldist.io.provenance import checksum, checksum_of
from pykaldist.io.scratch import PagesRead, release
from pykaldist.io.tables import read_lines

Layout = Mapping[str, tuple[str, Any]]


def load_array(folder: Path, name: str, checksums: Mapping[str, str], cure: str) -> np.ndarray:
    """Read an array of a store that has these checksums; raises UserError, which ends in `cure`, where the file is missing or damaged."""
    path = folder / name
    try:
        with named(path):
            content = path.read_bytes()
        array: np.ndarray = np.load(io.BytesIO(content), allow_pickle=False)
    except numpy_damage() as error:
        if of_the_machine(error):
            raise
        raise UserError(f"{path} is missing or damaged ({reason(error)}); {cure}.") from error
    _check(path, content, checksums, cure)
    return array


def load_utts(folder: Path, count: int, checksums: Mapping[str, str], cure: str) -> list[str]:
    """Read the list `utts` of a store of `count` utterances; raises UserError, which ends in `cure`, where it is another."""
    path = folder / "utts"
    utts = read_lines(path)
    if len(utts) != count:
        raise UserError(f"{path} has {len(utts)} utterances, the manifest says {count}; {cure}.")
    _check(path, "".join(f"{utt}\n" for utt in utts).encode(), checksums, cure)
    return utts


def _check(path: Path, content: bytes, checksums: Mapping[str, str], cure: str) -> None:
    """Compare what was read with the file's checksum: a bit can flip in this reading, whatever an earlier one has found."""
    if checksum_of(content) != checksums.get(path.name):
        raise UserError(f"{path} does not match its checksum: it was changed or is damaged; {cure}.")


class Items:
    """Packed items of a folder, memory-mapped. `totals`: the length of all items together, by unit.

    Raises UserError, which ends in `cure`, where files do not fit these.
    """

    def __init__(self, path: Path, layout: Layout, count: int, totals: Mapping[str, int], checksums: Mapping[str, str], cure: str) -> None:
        self._layout = layout
        self._arrays = {name: np.asarray(mapped(path / f"{name}.bin", np.dtype(dtype), (totals[unit],)))
                        for name, (unit, dtype) in layout.items()}
        self._offsets = {unit: load_array(path, f"{unit}.npy", checksums, cure) for unit in totals}
        self._pages = PagesRead([*self._arrays.values()], count)
        for unit, offsets in self._offsets.items():
            sound = offsets.dtype == np.int64 and offsets.shape == (count + 1,) and offsets[0] == 0
            if not sound or offsets[-1] != totals[unit] or (np.diff(offsets) < 0).any():
                raise UserError(f"{path / unit}.npy does not divide the {totals[unit]} {unit} of the manifest among its {count} items; "
                                f"{cure}.")

    def size(self, unit: str, number: int) -> int:
        """The length of an item, in a unit."""
        return int(self._offsets[unit][number + 1] - self._offsets[unit][number])

    def array(self, name: str, number: int) -> np.ndarray:
        """An item's values of an array."""
        offsets = self._offsets[self._layout[name][0]]
        return self._arrays[name][offsets[number] : offsets[number + 1]]

    def arrays(self, number: int) -> dict[str, np.ndarray]:
        """An item's values of all arrays, by name."""
        return {name: self.array(name, number) for name in self._layout}

    def note(self, numbers: Sequence[int] | np.ndarray) -> None:
        """Note that items are going to be read, so that not all that were read before stay in memory."""
        self._pages.note(np.asarray(numbers, np.int64))

    def passed(self, first: int, end: int) -> None:
        """Let go of the memory of items `first` to `end` - 1, which were read one behind the other."""
        for name, values in self._arrays.items():
            offsets = self._offsets[self._layout[name][0]]
            release(values[offsets[first] : offsets[end]])


class ItemsWriter:
    """Packs items into a folder; `checksums` and `totals` are there when the context is left."""

    def __init__(self, path: Path, layout: Layout, units: Sequence[str]) -> None:
        self.path, self._layout = path, layout
        self._offsets = {unit: array("q", [0]) for unit in units}
        self._stack = contextlib.ExitStack()
        self.checksums: dict[str, str] = {}
        self.totals: dict[str, int] = {}

    def __enter__(self) -> ItemsWriter:
        self._stack.__enter__()
        self._sinks = {name: Sink(self._stack.enter_context(atomic_open(self.path / f"{name}.bin", "wb"))) for name in self._layout}
        return self

    def __len__(self) -> int:
        return len(next(iter(self._offsets.values()))) - 1

    def append(self, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int]) -> None:
        """Write an item: its values, and its length in each unit."""
        for name, sink in self._sinks.items():
            sink.append(arrays[name].astype(self._layout[name][1], copy=False))
        for unit, offsets in self._offsets.items():
            offsets.append(offsets[-1] + sizes[unit])

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.__exit__(kind, error, trace)
        if kind is not None:
            return
        self.checksums = {f"{name}.bin": sink.digest.hexdigest() for name, sink in self._sinks.items()}
        for unit, offsets in self._offsets.items():
            save_array(self.path / f"{unit}.npy", np.frombuffer(offsets, np.int64))
            self.checksums[f"{unit}.npy"] = checksum(self.path / f"{unit}.npy")
            self.totals[unit] = offsets[-1]
