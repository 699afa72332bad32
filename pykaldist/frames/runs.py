"""Runs of a store's frames, and the rows of an array in which they lie."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class Runs:
    """Runs of frames that do not overlap, in ascending order: frames `first[i]` to `end[i]` - 1 lie in rows `row[i]` and those after it."""

    first: np.ndarray
    end: np.ndarray
    row: np.ndarray

    @classmethod
    def packed(cls, first: np.ndarray, end: np.ndarray) -> Runs:
        """Runs whose rows follow each other without gaps."""
        ends = np.cumsum(end - first)
        return cls(first, end, ends - (end - first))

    @classmethod
    def whole(cls, frames: int) -> Runs:
        """All of so many frames, each in the row of its own number."""
        return cls.packed(np.zeros(1, np.int64), np.array([frames]))

    @classmethod
    def around(cls, frames: np.ndarray, reach: tuple[int, int], total: int) -> Runs:
        """The runs of frames and of those up to `reach` before and after them, among `total` frames; their rows are packed."""
        chosen = np.sort(frames).astype(np.int64)
        first, end = np.maximum(chosen - reach[0], 0), np.minimum(chosen + reach[1] + 1, total)
        begins = np.flatnonzero(np.concatenate([[True], first[1:] > end[:-1]]))
        return cls.packed(first[begins], end[np.append(begins[1:], len(chosen)) - 1])

    @classmethod
    def marked(cls, marks: np.ndarray) -> Runs:
        """The runs of the frames that are marked, of one mark a frame; their rows are packed."""
        edges = np.flatnonzero(np.diff(marks, prepend=False, append=False))
        return cls.packed(edges[::2], edges[1::2])

    def __len__(self) -> int:
        """The number of frames."""
        return int((self.end - self.first).sum())

    @functools.cached_property
    def in_place(self) -> bool:
        """Whether each frame lies in the row of its own number."""
        return bool((self.first == self.row).all())

    def rows(self, frames: np.ndarray) -> np.ndarray:
        """The rows of frames, in the type of their numbers."""
        if self.in_place:
            return frames
        shift = (self.row - self.first).astype(frames.dtype)
        return frames + shift[np.searchsorted(self.first.astype(frames.dtype), frames, side="right") - 1]

    def split(self, edges: np.ndarray) -> Runs:
        """The same runs, cut before each of the frames `edges`, which ascend."""
        low, high = np.searchsorted(edges, self.first, side="right"), np.searchsorted(edges, self.end, side="left")
        counts = np.maximum(high - low, 0)
        inner = edges[np.repeat(low - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())]
        first = np.sort(np.concatenate([self.first, inner]))
        run = np.searchsorted(self.first, first, side="right") - 1
        return Runs(first, np.minimum(np.append(first[1:], self.end[-1]), self.end[run]), self.row[run] + first - self.first[run])

    def ordered(self) -> Runs:
        """Those that are not empty in the order of their rows, in which frames no longer ascend where rows do not ascend with them."""
        order = np.argsort(self.row, kind="stable")
        order = order[self.end[order] > self.first[order]]
        return Runs(self.first[order], self.end[order], self.row[order])

    def of_rows(self, first: int, end: int) -> Runs:
        """The runs within rows `first` to `end` - 1; rows ascend with the frames."""
        shift = self.row - self.first
        begins, ends = np.maximum(self.first, first - shift), np.minimum(self.end, end - shift)
        inside = begins < ends
        return Runs(begins[inside], ends[inside], (begins + shift)[inside])

    def frames(self, first: int, end: int, dtype: Any = np.int64) -> np.ndarray:
        """The frames in rows `first` to `end` - 1; rows ascend with the frames."""
        own = self.of_rows(first, end)
        return np.concatenate([np.arange(0, dtype=dtype), *(np.arange(a, b, dtype=dtype) for a, b in zip(own.first, own.end, strict=True))])

    def slices(self, to: Runs) -> Iterator[tuple[slice, slice]]:
        """Pairs of slices: rows of these runs, and the rows in which `to` has the same frames. All frames of these are in `to`."""
        cut = self.split(to.first)
        for row, other, length in zip(cut.row.tolist(), to.rows(cut.first).tolist(), (cut.end - cut.first).tolist(), strict=True):
            yield slice(row, row + length), slice(other, other + length)
