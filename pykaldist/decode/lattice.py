"""Lattices: a word graph with graph and acoustic costs apart, its files, and its best paths under any scales.

A path's cost at a point of a sweep is  lm_scale * graph + acoustic_scale * acoustic + word_ins_penalty * words; acoustic costs are stored
unscaled (minus log-likelihood), so one lattice answers every point. Files are Kaldi's: gzipped archives of OpenFst vector FSTs of
arc type `lattice4`, transition-ids in and words out, which `lattice-scale` or `lattice-best-path` read. Compact ones are read too.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numba
import numpy as np

from pykaldist.decode.compact import unpack_compact
from pykaldist.errors import UserError
from pykaldist.io.atomic import atomic_open
from pykaldist.io.fst import Header, pack, unpack
from pykaldist.io.tables import open_archive


@dataclass
class Lattice:
    """S states in topological order (state 0 starts), A arcs; the arcs of state s are `offset[s]:offset[s + 1]`.

    `final` is a graph cost, inf where a state is not final.
    """

    offset: np.ndarray  # int64 [S + 1]
    transition_id: np.ndarray  # int32 [A]; 0 on an arc that takes no frame
    word: np.ndarray  # int32 [A]; 0 on an arc without a word
    graph: np.ndarray  # float32 [A]
    acoustic: np.ndarray  # float32 [A], unscaled
    target: np.ndarray  # int32 [A]
    final: np.ndarray  # float32 [S]
    frame: np.ndarray  # int32 [S]: frames taken on the way to the state
    reached_final: bool = True

    @property
    def num_states(self) -> int:
        return len(self.final)

    @property
    def num_frames(self) -> int:
        return int(self.frame.max(initial=0))

    def to_bytes(self) -> bytes:
        """An OpenFst file of arc type `lattice4`."""
        final = np.stack([self.final, np.where(np.isinf(self.final), np.inf, 0)], axis=1)
        labels = np.stack([self.transition_id, self.word], axis=1)
        return pack("lattice4", 0, final, self.offset, labels, np.stack([self.graph, self.acoustic], axis=1), self.target)

    @classmethod
    def parse(cls, data: bytes | memoryview, pos: int = 0) -> tuple[Lattice, int]:
        """The lattice at `pos`, and the position after it; raises ValueError with the rest of a sentence."""
        header = Header.parse(data, pos)
        if header.fst_type != "vector" or header.arc_type not in ("lattice4", "compactlattice44"):
            raise ValueError(f"holds a {header.fst_type} FST of {header.arc_type} arcs where a lattice is expected")
        if header.arc_type == "compactlattice44":
            offset, transition_id, word, graph, acoustic, target, start, end = unpack_compact(data, header)
            final = np.full(len(offset) - 1, np.inf, np.float32)
            final[-1] = 0
        else:
            start, ends, offset, labels, weight, target, end = unpack(data, header, 2)
            if (ends[~np.isinf(ends[:, 0]), 1] != 0).any():
                raise ValueError("has acoustic costs on final states, which decoders do not make; decode again")
            transition_id, word = labels.T
            graph, acoustic = weight.T
            final = ends[:, 0]
        if np.isnan(graph).any() or np.isnan(acoustic).any():
            raise ValueError("has costs that are no numbers; decode again")
        return cls.in_order(start, offset, transition_id, word, graph, acoustic, target, final), end

    @classmethod
    def in_order(cls, start: int, offset: np.ndarray, transition_id: np.ndarray, word: np.ndarray, graph: np.ndarray,
                 acoustic: np.ndarray, target: np.ndarray, final: np.ndarray) -> Lattice:
        """From states in any order, which become topological; raises ValueError for a cycle."""
        source = np.repeat(np.arange(len(final)), np.diff(offset))
        if start != 0 or (target <= source).any():
            rank = _topological_rank(start, offset, target)
            if len(rank) != len(final):
                raise ValueError("has a cycle; decode again")
            by_rank = np.argsort(rank[source], kind="stable")
            offset = np.zeros(len(final) + 1, np.int64)
            np.cumsum(np.bincount(rank[source], minlength=len(final)), out=offset[1:])
            transition_id, word, graph, acoustic, target = (x[by_rank] for x in (transition_id, word, graph, acoustic, rank[target]))
            final = final[np.argsort(rank)]
        types = (np.int64, np.int32, np.int32, np.float32, np.float32, np.int32, np.float32)
        arrays = [np.ascontiguousarray(x, t) for x, t in zip((offset, transition_id, word, graph, acoustic, target, final), types,
                                                             strict=True)]
        return cls(*arrays, _frames(arrays[0], arrays[1], arrays[5]))


@dataclass
class LatticePath:
    """One path through a lattice."""

    words: list[int]
    transition_ids: list[int]
    graph: float
    acoustic: float


@numba.njit(cache=True)
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


@numba.njit(cache=True)
def _frames(offset: np.ndarray, transition_id: np.ndarray, target: np.ndarray) -> np.ndarray:
    frame = np.zeros(len(offset) - 1, np.int32)
    for s in range(len(frame)):
        for a in range(offset[s], offset[s + 1]):
            frame[target[a]] = frame[s] + (transition_id[a] != 0)
    return frame


@numba.njit(cache=True, nogil=True)
def _best_arcs(offset: np.ndarray, word: np.ndarray, graph: np.ndarray, acoustic: np.ndarray, target: np.ndarray, final: np.ndarray,
               lm_scale: np.ndarray, acoustic_scale: np.ndarray, penalty: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Arcs of the best path of each of K points, from its end to its start: ([K, longest], lengths [K]); length -1 for no path."""
    states, points = len(final), len(lm_scale)
    cost = np.full((states, points), np.inf)
    back = np.full((states, points), -1, np.int64)
    source = np.empty(len(target), np.int64)
    end_cost = np.full(points, np.inf)
    end = np.full(points, -1, np.int64)
    cost[0] = 0
    for s in range(states):
        for a in range(offset[s], offset[s + 1]):
            source[a] = s
            t = target[a]
            for k in range(points):
                c = cost[s, k] + lm_scale[k] * graph[a] + acoustic_scale[k] * acoustic[a] + (penalty[k] if word[a] != 0 else 0.0)
                if c < cost[t, k]:
                    cost[t, k] = c
                    back[t, k] = a
        if final[s] < np.inf:
            for k in range(points):
                c = cost[s, k] + lm_scale[k] * final[s]
                if c < end_cost[k]:
                    end_cost[k] = c
                    end[k] = s
    length = np.full(points, -1, np.int64)
    arcs = np.empty((points, states), np.int64)
    for k in range(points):
        if end[k] >= 0:
            n, s = 0, end[k]
            while back[s, k] >= 0:
                arcs[k, n] = back[s, k]
                s = source[back[s, k]]
                n += 1
            length[k] = n
    return arcs, length


def _points(lattice: Lattice, lm_scale: Sequence[float] | np.ndarray, acoustic_scale: Sequence[float] | np.ndarray,
            word_ins_penalty: Sequence[float] | np.ndarray) -> list[np.ndarray]:
    if lattice.num_states == 0:
        raise ValueError("the lattice is empty")
    scales = [np.ascontiguousarray(x, np.float64) for x in (lm_scale, acoustic_scale, word_ins_penalty)]
    arcs, length = _best_arcs(lattice.offset, lattice.word, lattice.graph, lattice.acoustic, lattice.target, lattice.final, *scales)
    if (length < 0).any():
        raise ValueError("the lattice has no path to a final state")
    return [row[:n][::-1] for row, n in zip(arcs, length, strict=True)]


def best_words(lattice: Lattice, lm_scale: Sequence[float] | np.ndarray, acoustic_scale: Sequence[float] | np.ndarray,
               word_ins_penalty: Sequence[float] | np.ndarray) -> list[list[int]]:
    """Words of the best path at each of K points (three sequences of length K), in one pass over the lattice."""
    paths = _points(lattice, lm_scale, acoustic_scale, word_ins_penalty)
    return [[int(w) for w in lattice.word[arcs] if w] for arcs in paths]


def best_path(lattice: Lattice, acoustic_scale: float, lm_scale: float = 1.0, word_ins_penalty: float = 0.0) -> LatticePath:
    """The best path at one point, its costs unscaled and the final state's included."""
    (arcs,) = _points(lattice, [lm_scale], [acoustic_scale], [word_ins_penalty])
    end = lattice.target[arcs[-1]] if len(arcs) else 0
    return LatticePath([int(w) for w in lattice.word[arcs] if w], [int(t) for t in lattice.transition_id[arcs] if t],
                 float(lattice.graph[arcs].sum(dtype=np.float64) + lattice.final[end]), float(lattice.acoustic[arcs].sum(dtype=np.float64)))


def write_lattices(path: str | os.PathLike[str], lattices: Iterable[tuple[str, Lattice]]) -> int:
    """Write a gzipped archive (`lat.JOB.gz`), atomically; returns the count."""
    count = 0
    with atomic_open(path, "wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=1, mtime=0, filename="") as stream:
        for key, lattice in lattices:
            stream.write(key.encode("utf-8") + b" " + lattice.to_bytes())
            count += 1
    return count


def read_lattices(path: str | os.PathLike[str]) -> Iterator[tuple[str, Lattice]]:
    """(utterance, lattice) for each entry of an archive, gzipped if it ends in `.gz`; raises UserError for damage."""
    try:
        with open_archive(path) as stream:
            data = stream.read()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path} is truncated or damaged ({error}); decode again.") from error
    pos, view = 0, memoryview(data)
    key = ""
    while pos < len(data):
        space = data.find(b" ", pos, pos + 1000)
        if space < 0:
            raise UserError(f"{path} is damaged after utterance {key or '(none)'}; decode again.")
        key = data[pos:space].decode("utf-8", "replace")
        try:
            lattice, pos = Lattice.parse(view, space + 1)
        except ValueError as error:
            raise UserError(f"{path}, utterance {key}: {error}.") from error
        yield key, lattice
