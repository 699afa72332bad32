"""Weighted finite-state transducers as flat arrays, and OpenFst's binary files of them.

The arcs of state s are `offset[s]:offset[s + 1]` of four parallel arrays, in the order of the file. Reads the types `vector` and `const`
of the arc type `standard`, and writes both. The body of a `vector` file is one stream of 4-byte words (see `pack`), which
lattice archives share with a weight of two floats.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from pykaldist.errors import AGAIN, UserError, named
from pykaldist.io.atomic import atomic_open
from pykaldist.kernels import kernel

MAGIC = struct.pack("<i", 2125659606)
EXPANDED, EXPANDED_MUTABLE = 1, 3  # properties; all others are unknown to a reader, who finds them out
_CONST_VERSION = 2  # not aligned
_CONST_STATE = np.dtype([("final", "<f4"), ("pos", "<u4"), ("narcs", "<u4"), ("ieps", "<u4"), ("oeps", "<u4")])
_CONST_ARC = np.dtype([("ilabel", "<i4"), ("olabel", "<i4"), ("weight", "<f4"), ("nextstate", "<i4")])
_SYMBOLS, _ALIGNED = 3, 4  # header flags
_PIECE = 1 << 18  # states or arcs that are written at a time
_TRUNCATED = f"is truncated or damaged; {AGAIN}"


@dataclass
class Fst:
    """A transducer with S states and A arcs; weights are costs (negative log probabilities), `inf` where a state is not final."""

    start: int
    final: np.ndarray  # float32 [S]
    offset: np.ndarray  # int64 [S + 1]
    ilabel: np.ndarray  # int32 [A]
    olabel: np.ndarray  # int32 [A]
    weight: np.ndarray  # float32 [A]
    nextstate: np.ndarray  # int32 [A]

    @property
    def num_states(self) -> int:
        return len(self.final)

    @property
    def num_arcs(self) -> int:
        return len(self.ilabel)

    @property
    def source(self) -> np.ndarray:
        """The state that each arc leaves, int32 [A]."""
        return np.repeat(np.arange(self.num_states, dtype=np.int32), np.diff(self.offset))

    @classmethod
    def from_arcs(cls, start: int, final: np.ndarray, source: np.ndarray, ilabel: np.ndarray, olabel: np.ndarray,
                  weight: np.ndarray, nextstate: np.ndarray) -> Fst:
        """Make a transducer from arcs in any order; the arcs of one state keep their order."""
        order = np.argsort(source, kind="stable")
        offset = np.zeros(len(final) + 1, np.int64)
        np.cumsum(np.bincount(source, minlength=len(final)), out=offset[1:])
        return cls(start, np.asarray(final, np.float32), offset, np.asarray(ilabel, np.int32)[order],
                   np.asarray(olabel, np.int32)[order], np.asarray(weight, np.float32)[order],
                   np.asarray(nextstate, np.int32)[order])

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Fst:
        """Read a binary OpenFst file; raises UserError for anything else, and for damage."""
        with named(path), open(path, "rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            data = mmap.mmap(stream.fileno(), size, access=mmap.ACCESS_READ) if size else b""
        return cls.parse(data, os.fspath(path))

    @classmethod
    def parse(cls, data: bytes | mmap.mmap, path: str = "the FST") -> Fst:
        """Read the bytes of a binary OpenFst file; `path` is its name in messages."""
        try:
            header = Header.parse(data, 0)
            if header.arc_type != "standard" or header.fst_type not in ("vector", "const"):
                raise ValueError(f"holds a {header.fst_type} FST of {header.arc_type} arcs where a vector or const one of standard "
                                 "arcs is expected; convert it with fstconvert")
            if header.fst_type == "const":
                return cls.parse_const(data, header)[0]
            start, final, offset, labels, weight, nextstate, end = unpack(data, header, 1)
            if end != len(data):
                raise ValueError(f"has {len(data) - end} bytes behind its last state; {AGAIN}")
        except ValueError as error:
            raise UserError(f"{path} {error}.") from error
        return cls(start, final[:, 0], offset, np.ascontiguousarray(labels[:, 0]), np.ascontiguousarray(labels[:, 1]), weight[:, 0],
                   nextstate)

    @classmethod
    def parse_const(cls, data: bytes | mmap.mmap, header: Header) -> tuple[Fst, int]:
        """Read the body of a `const` file behind its head, and find where it ends; raises ValueError, like `Header.parse`."""
        states, arcs = _CONST_STATE, _CONST_ARC
        align = 16 if header.flags & _ALIGNED or header.version == 1 else 1
        pos = -(-header.end // align) * align
        num_arcs = max(header.num_arcs, 0)
        if pos + states.itemsize * header.num_states > len(data):
            raise ValueError(_TRUNCATED)
        s = np.frombuffer(data, states, header.num_states, pos)
        pos = -(-(pos + s.nbytes) // align) * align
        if pos + arcs.itemsize * num_arcs > len(data):
            raise ValueError(_TRUNCATED)
        a = np.frombuffer(data, arcs, num_arcs, pos)
        offset = np.zeros(header.num_states + 1, np.int64)
        np.cumsum(s["narcs"], out=offset[1:])
        if offset[-1] != num_arcs or (s["pos"] != offset[:-1])[s["narcs"] > 0].any():
            raise ValueError(_TRUNCATED)
        _check(header.start, a["nextstate"], header.num_states)
        columns = [np.ascontiguousarray(a[name]) for name in ("ilabel", "olabel", "weight", "nextstate")]
        return cls(header.start, np.ascontiguousarray(s["final"]), offset, *columns), pos + a.nbytes

    def write(self, path: str | os.PathLike[str], fst_type: str = "vector") -> None:
        """Write a file of type `vector` or `const`, atomically."""
        with atomic_open(path, "wb") as stream:
            stream.writelines(self.vector_parts() if fst_type == "vector" else self.const_parts())

    def vector_parts(self) -> Iterator[bytes]:
        """The bytes of a `vector` file, a piece after the other."""
        yield vector_header("standard", EXPANDED_MUTABLE, self.start, self.num_states, self.num_arcs)
        first = 0
        while first < self.num_states:
            end = max(first + 1, min(int(np.searchsorted(self.offset, self.offset[first] + _PIECE, "right")) - 1, first + _PIECE))
            arcs = slice(int(self.offset[first]), int(self.offset[end]))
            yield _body(self.final[first:end, None], self.offset[first:end + 1] - self.offset[first],
                        np.stack([self.ilabel[arcs], self.olabel[arcs]], axis=1), self.weight[arcs, None], self.nextstate[arcs])
            first = end

    def const_parts(self, properties: int = EXPANDED) -> Iterator[bytes]:
        """The bytes of a `const` file, a piece after the other."""
        yield header("const", "standard", _CONST_VERSION, properties, self.start, self.num_states, self.num_arcs)
        for first in range(0, self.num_states, _PIECE):
            end = min(first + _PIECE, self.num_states)
            arcs = slice(int(self.offset[first]), int(self.offset[end]))
            source = np.repeat(np.arange(end - first), np.diff(self.offset[first:end + 1]))
            states = np.zeros(end - first, _CONST_STATE)
            states["final"], states["pos"] = self.final[first:end], self.offset[first:end]
            states["narcs"] = np.diff(self.offset[first:end + 1])
            for field, labels in (("ieps", self.ilabel[arcs]), ("oeps", self.olabel[arcs])):
                states[field] = np.bincount(source[labels == 0], minlength=end - first)
            yield states.tobytes()
        for first in range(0, self.num_arcs, _PIECE):
            piece = slice(first, first + _PIECE)
            arcs_of = np.zeros(len(self.ilabel[piece]), _CONST_ARC)
            for field in _CONST_ARC.names or ():
                arcs_of[field] = getattr(self, field)[piece]
            yield arcs_of.tobytes()

    def to_bytes(self) -> bytes:
        return b"".join(self.vector_parts())


@dataclass
class Header:
    """The head of an OpenFst file; `end` is the position of the first byte after it."""

    fst_type: str
    arc_type: str
    version: int
    flags: int
    start: int
    num_states: int
    num_arcs: int
    end: int

    @classmethod
    def parse(cls, data: bytes | memoryview | mmap.mmap, pos: int) -> Header:
        """Read the head of an OpenFst file; raises ValueError with the rest of a sentence that begins with the file's name."""
        names = []
        try:
            if bytes(data[pos : pos + 4]) != MAGIC:
                raise ValueError("is no binary OpenFst file")
            pos += 4
            for _ in range(2):
                (length,) = struct.unpack_from("<i", data, pos)
                if not 0 < length < 64:
                    raise ValueError(_TRUNCATED)
                names.append(bytes(data[pos + 4 : pos + 4 + length]).decode("ascii", "replace"))
                if re.fullmatch(r"[\w.-]+", names[-1], re.ASCII) is None:
                    raise ValueError(_TRUNCATED)
                pos += 4 + length
            version, flags, _, start, states, arcs = struct.unpack_from("<iiQqqq", data, pos)
        except struct.error as error:
            raise ValueError(_TRUNCATED) from error
        if flags & _SYMBOLS:
            raise ValueError("has symbol tables inside; strip them with fstsymbols --clear_isymbols --clear_osymbols")
        if states < 0 or states > len(data) or not -1 <= start < max(states, 1):
            raise ValueError(_TRUNCATED)
        return cls(names[0], names[1], version, flags, start, states, arcs, pos + 40)


def _check(start: int, nextstate: np.ndarray, num_states: int) -> None:
    if len(nextstate) and not 0 <= nextstate.min() <= nextstate.max() < num_states:
        raise ValueError(f"has an arc to a state that does not exist; {AGAIN}")
    if num_states and start < 0:
        raise ValueError(f"has no start state; {AGAIN}")


@kernel
def _scan(words: np.ndarray, num_states: int, floats: int) -> np.ndarray:
    """Arc offsets of a `vector` body; one element -1 where the body ends too early."""
    offset = np.zeros(num_states + 1, np.int64)
    pos = 0
    for s in range(num_states):
        if pos + floats + 2 > len(words):
            return np.full(1, -1, np.int64)
        narcs: Any = np.int64(words[pos + floats])
        if narcs < 0 or words[pos + floats + 1] != 0:
            return np.full(1, -1, np.int64)
        pos += floats + 2 + narcs * (floats + 3)
        offset[s + 1] = offset[s] + narcs
    return offset if pos <= len(words) else np.full(1, -1, np.int64)


@kernel
def _gather(words: np.ndarray, offset: np.ndarray, final: np.ndarray, labels: np.ndarray, weight: np.ndarray,
            nextstate: np.ndarray) -> None:
    """Take a `vector` body apart; floats are int32 of the same bits."""
    pos, floats = 0, final.shape[1]
    for s in range(len(final)):
        for i in range(floats):
            final[s, i] = words[pos + i]
        pos += floats + 2
        for a in range(offset[s], offset[s + 1]):
            labels[a, 0], labels[a, 1] = words[pos], words[pos + 1]
            for i in range(floats):
                weight[a, i] = words[pos + 2 + i]
            nextstate[a] = words[pos + 2 + floats]
            pos += floats + 3


@kernel
def _scatter(words: np.ndarray, offset: np.ndarray, final: np.ndarray, labels: np.ndarray, weight: np.ndarray,
             nextstate: np.ndarray) -> None:
    """Put a `vector` body together, the inverse of `_gather`."""
    pos, floats = 0, final.shape[1]
    for s in range(len(final)):
        for i in range(floats):
            words[pos + i] = final[s, i]
        words[pos + floats], words[pos + floats + 1] = offset[s + 1] - offset[s], 0
        pos += floats + 2
        for a in range(offset[s], offset[s + 1]):
            words[pos], words[pos + 1] = labels[a, 0], labels[a, 1]
            for i in range(floats):
                words[pos + 2 + i] = weight[a, i]
            words[pos + 2 + floats] = nextstate[a]
            pos += floats + 3


def unpack(data: bytes | memoryview | mmap.mmap, header: Header, floats: int) -> tuple[int, np.ndarray, np.ndarray, np.ndarray, np.ndarray,
                                                                           np.ndarray, int]:
    """Read the body of a `vector` FST file with `floats` floats a weight.

    Returns (start, final, offset, labels, weight, nextstate, end position). Raises ValueError, like `Header.parse`.
    """
    words = np.frombuffer(data, "<i4", (len(data) - header.end) // 4, header.end)
    offset = _scan(words, header.num_states, floats)
    if len(offset) != header.num_states + 1 or offset[-1] < 0:
        raise ValueError(_TRUNCATED)
    states, arcs = header.num_states, int(offset[-1])
    size = (floats + 2) * states + (floats + 3) * arcs
    final, labels, weight, nextstate = (np.empty(shape, np.int32) for shape in ((states, floats), (arcs, 2), (arcs, floats), arcs))
    _gather(words, offset, final, labels, weight, nextstate)
    final, weight = final.view(np.float32), weight.view(np.float32)
    _check(header.start, nextstate, header.num_states)
    if np.isnan(weight).any() or np.isnan(final).any():
        raise ValueError(f"has weights that are no numbers; {AGAIN}")
    return header.start, final, offset, labels, weight, nextstate, header.end + 4 * size


def pack(arc_type: str, start: int, final: np.ndarray, offset: np.ndarray, labels: np.ndarray, weight: np.ndarray,
         nextstate: np.ndarray) -> bytes:
    """Write a whole `vector` FST file as bytes.

    For each state it has the final weight and the number of arcs (int64), then the arcs (ilabel, olabel, weight, nextstate).

    `final` is float32 [S, floats], `labels` int32 [A, 2], `weight` float32 [A, floats].
    """
    return vector_header(arc_type, EXPANDED_MUTABLE, start, len(final), len(nextstate)) + _body(final, offset, labels, weight, nextstate)


def _body(final: np.ndarray, offset: np.ndarray, labels: np.ndarray, weight: np.ndarray, nextstate: np.ndarray) -> bytes:
    """The body of a `vector` file, or that of some of its states, whose arcs begin at `offset` 0."""
    words = np.empty((final.shape[1] + 2) * len(final) + (final.shape[1] + 3) * len(nextstate), np.int32)
    _scatter(words, np.ascontiguousarray(offset, np.int64), np.ascontiguousarray(final, np.float32).view(np.int32),
             np.ascontiguousarray(labels, np.int32), np.ascontiguousarray(weight, np.float32).view(np.int32),
             np.ascontiguousarray(nextstate, np.int32))
    return words.tobytes()


def vector_header(arc_type: str, properties: int, start: int, num_states: int, num_arcs: int) -> bytes:
    """The head of a `vector` file."""
    return header("vector", arc_type, 2, properties, start, num_states, num_arcs)


def header(fst_type: str, arc_type: str, version: int, properties: int, start: int, num_states: int, num_arcs: int) -> bytes:
    """The head of a file; OpenFst works out properties whose bits are not set when it needs them."""
    head = MAGIC
    for name in (fst_type, arc_type):
        head += struct.pack("<i", len(name)) + name.encode()
    return head + struct.pack("<iiQqqq", version, 0, properties, start, num_states, num_arcs)
