"""Lattices as arrays; all lattices of a minibatch share one set of arrays.

A lattice has states in topological order, the first its start and the last its end, and arcs sorted by the state that they leave. Each arc
takes a run of frames, none or many, with a transition-id in each. What depends on a frame and a transition-id alone (a log-likelihood, an
accuracy) is the same for all arcs that meet there, so it has one place, a *cell*:

    cells     (frame, transition_id), sorted                      of a dense lattice about a tenth of its entries
    entries   the cell of each frame of each arc: those of arc a are entry[string[a]:string[a + 1]]

An arc with its run is what a path of arcs with one frame each would be (Kaldi's lattices before they are made compact): the states within
it have one way in and one way out, so all its frames have the posterior of the arc. Forward and backward go over the arcs alone; frames
take a sum over entries (`entry_sums`) before, and another over them (`cell_sums`) after.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pykaldist.kernels import kernel


@dataclass
class Lattices:
    """Lattices of L utterances with S states, A arcs, E entries, C cells and T frames in all; numbers count through all of them.

    Lattice l has the states `states[l]:states[l + 1]`, and so for `arcs`, `cells` and `frames`. Costs are unscaled; that of an end of paths
    is on the arcs to the last state.
    """

    states: np.ndarray  # int64 [L + 1]
    arcs: np.ndarray  # int64 [L + 1]
    cells: np.ndarray  # int64 [L + 1]
    frames: np.ndarray  # int64 [L + 1]
    source: np.ndarray  # int32 [A]
    target: np.ndarray  # int32 [A]
    graph: np.ndarray  # float32 [A]
    acoustic: np.ndarray  # float32 [A]
    string: np.ndarray  # int64 [A + 1]
    entry: np.ndarray  # int32 [E]
    frame: np.ndarray  # int32 [C]
    transition_id: np.ndarray  # int32 [C]
    word: np.ndarray | None = None  # int32 [A]; 0 on an arc without a word

    def __len__(self) -> int:
        return len(self.states) - 1

    @classmethod
    def joined(cls, parts: Sequence[Lattices]) -> Lattices:
        """The lattices of several, one behind the other, in arrays of their own."""
        def offsets(name: str) -> np.ndarray:
            return np.concatenate([np.zeros(1, np.int64), *(np.diff(getattr(part, name)) for part in parts)]).cumsum()

        def shifted(name: str, sizes: list[int]) -> np.ndarray:
            """Numbers that count what the parts before have so many of."""
            before = np.cumsum([0, *sizes])[:-1]
            numbers = [getattr(part, name) + np.int32(n) for part, n in zip(parts, before, strict=True)]
            return np.concatenate([np.zeros(0, np.int32), *numbers])

        def plain(name: str) -> np.ndarray:
            dtype = np.int32 if name in ("transition_id", "word") else np.float32
            return np.concatenate([np.zeros(0, dtype), *(getattr(part, name) for part in parts)])

        states, cells, frames = ([int(getattr(part, name)[-1]) for part in parts] for name in ("states", "cells", "frames"))
        return cls(offsets("states"), offsets("arcs"), offsets("cells"), offsets("frames"), shifted("source", states),
                   shifted("target", states), plain("graph"), plain("acoustic"), offsets("string"), shifted("entry", cells),
                   shifted("frame", frames), plain("transition_id"), None if any(part.word is None for part in parts) else plain("word"))

    def entry_sums(self, values: np.ndarray) -> np.ndarray:
        """Sum values of cells (C,) over the entries of each arc, float64 (A,)."""
        return _entry_sums(self.string, self.entry, np.ascontiguousarray(values, np.float64))

    def cell_sums(self, values: np.ndarray) -> np.ndarray:
        """Sum values of arcs (A,) over the entries of each cell, float64 (C,)."""
        return _cell_sums(self.string, self.entry, np.ascontiguousarray(values, np.float64), len(self.frame))


@kernel(nogil=True)
def _entry_sums(string: np.ndarray, entry: np.ndarray, values: np.ndarray) -> np.ndarray:
    sums = np.zeros(len(string) - 1)
    for a in range(len(sums)):
        total = 0.0
        for e in range(string[a], string[a + 1]):
            total += values[entry[e]]
        sums[a] = total
    return sums


@kernel(nogil=True)
def _cell_sums(string: np.ndarray, entry: np.ndarray, values: np.ndarray, cells: int) -> np.ndarray:
    sums = np.zeros(cells)
    for a in range(len(values)):
        for e in range(string[a], string[a + 1]):
            sums[entry[e]] += values[a]
    return sums
