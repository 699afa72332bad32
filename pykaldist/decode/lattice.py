"""Lattices and their files: word graphs with the transition-ids of each arc, graph and acoustic costs apart.

Acoustic costs are stored unscaled (minus log-likelihood), so one lattice answers at every scale. Files are Kaldi's: gzipped archives of
compact lattices, which `lattice-scale` and `lattice-best-path` read. State-level ones (`lattice4`) are read too.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pykaldist.decode.compact import ARC_TYPE, pack_compact, unpack_compact
from pykaldist.errors import DECODING, UserError
from pykaldist.io.entries import open_archive
from pykaldist.io.fst import Header, unpack
from pykaldist.io.tables import output_archive
from pykaldist.kernels import kernel

_LONGEST_KEY = 500


@dataclass
class Lattice:
    """A lattice with S states in topological order (state 0 starts) and A arcs; the arcs of state s are `offset[s]:offset[s + 1]`.

    A state is final where `final` is not inf. A decoder's arc has at most one transition-id, a determinised lattice's any number: those of
    arc a are `transition_ids[string[a]:string[a + 1]]`, those of a final state s likewise with `A + s` for `a`.
    """

    offset: np.ndarray  # int64 [S + 1]
    word: np.ndarray  # int32 [A]; 0 on an arc without a word
    graph: np.ndarray  # float32 [A]
    acoustic: np.ndarray  # float32 [A], unscaled
    target: np.ndarray  # int32 [A]
    final: np.ndarray  # float32 [S], graph cost
    final_acoustic: np.ndarray  # float32 [S], unscaled
    string: np.ndarray  # int64 [A + S + 1]
    transition_ids: np.ndarray  # int32
    reached_final: bool = True
    narrowed: bool = False  # paths within the beam were left out, as they took too long (`determinize.py`)

    def __post_init__(self) -> None:
        for costs in ("graph", "acoustic", "final", "final_acoustic"):  # columns of records: kernels are compiled for arrays of one piece
            setattr(self, costs, np.ascontiguousarray(getattr(self, costs)))

    def scale_acoustic(self, factor: float) -> Lattice:
        """The lattice with its acoustic costs times `factor`, as `lattice-scale --acoustic-scale` makes it."""
        there = np.isfinite(self.final_acoustic)
        final = np.where(there, np.float32(factor) * np.where(there, self.final_acoustic, 0), self.final_acoustic)
        return replace(self, acoustic=np.float32(factor) * self.acoustic, final_acoustic=final.astype(np.float32))

    def penalise_words(self, penalty: float) -> Lattice:
        """The lattice with a penalty on each of its words, as `lattice-add-penalty` makes it."""
        return replace(self, graph=(self.graph + penalty * (self.word != 0)).astype(np.float32))

    @property
    def num_states(self) -> int:
        return len(self.final)

    @property
    def num_arcs(self) -> int:
        return len(self.word)

    @property
    def source(self) -> np.ndarray:
        """The state that each arc leaves."""
        return np.repeat(np.arange(self.num_states), np.diff(self.offset))

    @property
    def num_frames(self) -> int:
        """The number of frames of its paths, which is the same on each."""
        ends = self.frame + np.diff(self.string[self.num_arcs :])
        return int(ends[self.final < np.inf].max(initial=0))

    @property
    def frame(self) -> np.ndarray:
        """The number of frames on the way to each state, int64 [S]."""
        return _frames(self.offset, self.target, self.string)

    @property
    def reaches_end(self) -> np.ndarray:
        """Whether a final state can be reached from each state, bool [S]."""
        final = self.final < np.inf
        if (final | (np.diff(self.offset) > 0)).all():  # from each state one comes on, until a final one
            return np.ones(self.num_states, bool)
        return _reaches_end(self.offset, self.target, final)

    def ids(self, index: int) -> np.ndarray:
        """The transition-ids of arc `index`, or of final state `index - A`."""
        return self.transition_ids[self.string[index] : self.string[index + 1]]

    @classmethod
    def from_arcs(cls, offset: np.ndarray, transition_id: np.ndarray, word: np.ndarray, graph: np.ndarray, acoustic: np.ndarray,
                  target: np.ndarray, final: np.ndarray, reached_final: bool = True) -> Lattice:
        """Make a state-level lattice: one transition-id an arc, 0 where it takes no frame."""
        string = np.zeros(len(word) + len(final) + 1, np.int64)
        np.cumsum(transition_id != 0, out=string[1 : len(word) + 1])
        string[len(word) + 1 :] = string[len(word)]
        final = np.asarray(final, np.float32)
        return cls(offset, word, graph, acoustic, target, final, np.where(final < np.inf, 0, np.inf).astype(np.float32), string,
                   transition_id[transition_id != 0], reached_final)

    def to_bytes(self) -> bytes:
        """Write the lattice as the bytes of a compact lattice file."""
        cost = np.concatenate([np.stack([self.graph, self.acoustic], 1), np.stack([self.final, self.final_acoustic], 1)])
        return pack_compact(self.offset, self.word, cost, self.target, self.string, self.transition_ids)

    @classmethod
    def parse(cls, data: bytes | memoryview, pos: int = 0) -> tuple[Lattice, int]:
        """Read the lattice at `pos`, its states as in the file if state 0 starts it, and the position after it.

        Raises ValueError with the rest of a sentence.
        """
        header = Header.parse(data, pos)
        if header.fst_type != "vector" or header.arc_type not in ("lattice4", ARC_TYPE):
            raise ValueError(f"holds a {header.fst_type} FST of {header.arc_type} arcs where a lattice is expected")
        if header.arc_type == ARC_TYPE:
            offset, word, cost, target, string, transition_ids, end = unpack_compact(data, header)
            arcs = len(word)
            lattice = cls(offset, word, cost[:arcs, 0], cost[:arcs, 1], target, cost[arcs:, 0], cost[arcs:, 1], string, transition_ids)
        else:
            _, final, offset, labels, cost, target, end = unpack(data, header, 2)
            lattice = cls.from_arcs(offset, labels[:, 0], labels[:, 1], cost[:, 0], cost[:, 1], target, final[:, 0])
            lattice.final_acoustic = final[:, 1]
        ends = ~np.isposinf(lattice.final)
        if not all(np.isfinite(x).all() for x in (lattice.graph, lattice.acoustic, lattice.final[ends], lattice.final_acoustic[ends])):
            raise ValueError(f"has costs that are no numbers; decode again ({DECODING})")
        if header.num_states and header.start < 0:
            raise ValueError(f"has no start state; decode again ({DECODING})")
        if len(target) and not 0 <= target.min() <= target.max() < header.num_states:
            raise ValueError(f"has an arc to a state that does not exist; decode again ({DECODING})")
        return lattice if header.start <= 0 else lattice.in_order(header.start), end

    def in_order(self, start: int = 0) -> Lattice:
        """The lattice with `start` as state 0 and states in topological order; raises ValueError for a cycle."""
        source = self.source
        if start == 0 and (self.target > source).all():
            return self
        rank = _topological_rank(start, self.offset, self.target)
        if len(rank) != self.num_states:
            raise ValueError(f"has a cycle; decode again ({DECODING})")
        return self.select(np.argsort(rank))

    def select(self, states: np.ndarray) -> Lattice:
        """The lattice of these states only, renumbered in this order, and the arcs between them."""
        number = np.full(self.num_states, -1, np.int64)
        number[states] = np.arange(len(states))
        source, target = number[self.source], number[self.target]
        arcs = np.flatnonzero((source >= 0) & (target >= 0))
        arcs = arcs[np.argsort(source[arcs], kind="stable")]
        offset = np.zeros(len(states) + 1, np.int64)
        np.cumsum(np.bincount(source[arcs], minlength=len(states)), out=offset[1:])
        strings = np.concatenate([arcs, self.num_arcs + states])
        length = np.diff(self.string)[strings]
        string = np.concatenate([[0], np.cumsum(length)])
        places = np.arange(string[-1]) + np.repeat(self.string[strings] - string[:-1], length)
        return Lattice(offset, self.word[arcs], self.graph[arcs], self.acoustic[arcs], target[arcs].astype(np.int32), self.final[states],
                       self.final_acoustic[states], string, self.transition_ids[places], self.reached_final)


@kernel(nogil=True)
def _topological_rank(start: int, offset: np.ndarray, target: np.ndarray) -> np.ndarray:
    """The place of each state in a topological order that begins with `start`; empty where there is a cycle."""
    states = len(offset) - 1
    incoming = np.zeros(states, np.int64)
    for t in target:
        incoming[t] += 1
    if incoming[start] > 0:
        return np.empty(0, np.int64)
    rank = np.full(states, -1, np.int64)
    order = np.zeros(states, np.int64)
    order[0] = start
    done = 1
    for s in range(states):
        if incoming[s] == 0 and s != start:
            order[done] = s
            done += 1
    for at in range(states):
        if at >= done:
            return np.empty(0, np.int64)
        s = order[at]
        rank[s] = at
        for a in range(offset[s], offset[s + 1]):
            incoming[target[a]] -= 1
            if incoming[target[a]] == 0:
                order[done] = target[a]
                done += 1
    return rank


@kernel(nogil=True)
def _frames(offset: np.ndarray, target: np.ndarray, string: np.ndarray) -> np.ndarray:
    frame = np.zeros(len(offset) - 1, np.int64)
    for s in range(len(frame)):
        for a in range(offset[s], offset[s + 1]):
            frame[target[a]] = frame[s] + string[a + 1] - string[a]
    return frame


@kernel
def _reaches_end(offset: np.ndarray, target: np.ndarray, final: np.ndarray) -> np.ndarray:
    reaches = final.copy()
    for s in range(len(final) - 1, -1, -1):
        for a in range(offset[s], offset[s + 1]):
            reaches[s] |= reaches[target[a]]
    return reaches


def write_lattices(path: str | os.PathLike[str], lattices: Iterable[tuple[str, Lattice]]) -> int:
    """Write an archive (`lat.JOB.gz`; gzipped if it ends in `.gz`), atomically; returns the count."""
    count = 0
    with output_archive(path) as stream:
        for key, lattice in lattices:
            stream.write(key.encode("utf-8") + b" " + lattice.to_bytes())
            count += 1
    return count


def read_lattices(path: str | os.PathLike[str]) -> Iterator[tuple[str, Lattice]]:
    """Iterate over (utterance, lattice) of an archive, gzipped if its name ends in `.gz`.

    Raises UserError for damage, and for a lattice without a path.
    """
    try:
        with open_archive(path) as stream:
            data = stream.read()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path} is truncated or damaged ({error}); decode again ({DECODING}).") from error
    yield from lattices_in(data, os.fspath(path))


def lattices_in(data: bytes, path: str) -> Iterator[tuple[str, Lattice]]:
    """Iterate over (utterance, lattice) of an archive's bytes; `path` is its name in messages, which are those of `read_lattices`."""
    pos, view = 0, memoryview(data)
    key = ""
    while pos < len(data):
        space = data.find(b" ", pos, pos + _LONGEST_KEY)
        found = data[pos:space].decode("utf-8", "replace")
        if space <= pos or not found.isprintable() or "\ufffd" in found:
            raise UserError(f"{path} is damaged or no lattice archive: no key after {key or 'its beginning'}; decode again ({DECODING}).")
        key = found
        try:
            lattice, pos = Lattice.parse(view, space + 1)
            lattice = lattice.in_order()
            if lattice.num_states == 0 or not lattice.reaches_end[0]:
                raise ValueError(f"has no path to a final state; decode again ({DECODING})")
        except ValueError as error:
            raise UserError(f"{path}, utterance {key}: {error}.") from error
        yield key, lattice


def read_decode_dir(decode_dir: str | os.PathLike[str]) -> Iterator[tuple[str, Lattice]]:
    """Iterate over (utterance, lattice) of all `lat.*.gz`, in the order of the jobs; raises UserError where there is none."""
    archives = sorted(Path(decode_dir).glob("lat.*.gz"), key=lambda path: (len(path.name), path.name))
    if not archives:
        raise UserError(f"{decode_dir} has no lattices (lat.*.gz); decode first ({DECODING}).")
    return (entry for path in archives for entry in read_lattices(path))
