"""Weighted finite-state transducers as flat arrays, and OpenFst's binary files of them.

The arcs of state s are `offset[s]:offset[s + 1]` of four parallel arrays, in the order of the file. Reads the types `vector` and `const`
of the arc type `standard`, and writes both. The body of a `vector` file is one stream of 4-byte words (see `pack`), which
lattice archives share with a weight of two floats.
"""

from __future__ import annotations

import os
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pykaldist.errors import UserError, named
from pykaldist.io.atomic import atomic_open
from pykaldist.kernels import kernel

MAGIC = struct.pack("<i", 2125659606)
EXPANDED, EXPANDED_MUTABLE = 1, 3  # properties; all others are unknown to a reader, who finds them out
_CONST_VERSION = 2  # not aligned
_CONST_STATE = np.dtype([("final", "<f4"), ("pos", "<u4"), ("narcs", "<u4"), ("ieps", "<u4"), ("oeps", "<u4")])
_CONST_ARC = np.dtype([("ilabel", "<i4"), ("olabel", "<i4"), ("weight", "<f4"), ("nextstate", "<i4")])
_SYMBOLS, _ALIGNED = 3, 4  # header flags
_TRUNCATED = "is truncated or damaged; make it again"


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
        with named(path):
            data = Path(path).read_bytes()
        return cls.parse(data, os.fspath(path))

    @classmethod
    def parse(cls, data: bytes, path: str = "the FST") -> Fst:
        """Read the bytes of a binary OpenFst file; `path` is its name in messages."""
        try:
            header = Header.parse(data, 0)
            if header.arc_type != "standard" or header.fst_type not in ("vector", "const"):
                raise ValueError(f"holds a {header.fst_type} FST of {header.arc_type} arcs where a vector or const one of standard "
                                 "arcs is expected; convert it with fstconvert")
            if header.fst_type == "const":
                return _parse_const(data, header)
            start, final, offset, labels, weight, nextstate, end = unpack(data, header, 1)
            if end != len(data):
                raise ValueError(f"has {len(data) - end} bytes behind its last state; make it again")
        except ValueError as error:
            raise UserError(f"{path} {error}.") from error
        return cls(start, final[:, 0], offset, labels[:, 0], labels[:, 1], weight[:, 0], nextstate)

    def write(self, path: str | os.PathLike[str], fst_type: str = "vector") -> None:
        """Write a file of type `vector` or `const`, atomically."""
        with atomic_open(path, "wb") as stream:
            stream.write(self.to_bytes() if fst_type == "vector" else self._const_bytes())

    def _const_bytes(self) -> bytes:
        narcs = np.diff(self.offset)
        states = np.zeros(self.num_states, _CONST_STATE)
        states["final"], states["pos"], states["narcs"] = self.final, self.offset[:-1], narcs
        for field, labels in (("ieps", self.ilabel), ("oeps", self.olabel)):
            states[field] = np.bincount(self.source[labels == 0], minlength=self.num_states)
        arcs = np.zeros(self.num_arcs, _CONST_ARC)
        for field in _CONST_ARC.names or ():
            arcs[field] = getattr(self, field)
        return _header("const", "standard", _CONST_VERSION, EXPANDED, self.start, self.num_states, self.num_arcs) + states.tobytes() + \
            arcs.tobytes()

    def to_bytes(self) -> bytes:
        labels = np.stack([self.ilabel, self.olabel], axis=1)
        return pack("standard", self.start, self.final[:, None], self.offset, labels, self.weight[:, None], self.nextstate)


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
    def parse(cls, data: bytes | memoryview, pos: int) -> Header:
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
        raise ValueError("has an arc to a state that does not exist; make it again")
    if num_states and start < 0:
        raise ValueError("has no start state; make it again")


def _parse_const(data: bytes, header: Header) -> Fst:
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
    return Fst(header.start, np.ascontiguousarray(s["final"]), offset, *columns)


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


def _places(offset: np.ndarray, floats: int) -> tuple[np.ndarray, np.ndarray]:
    """Word positions of the states' and of the arcs' records in a `vector` body."""
    states = np.arange(len(offset) - 1, dtype=np.int64)
    arcs = np.arange(offset[-1], dtype=np.int64)
    source = np.repeat(states, np.diff(offset))
    return (floats + 2) * states + (floats + 3) * offset[:-1], (floats + 2) * (source + 1) + (floats + 3) * arcs


def unpack(data: bytes | memoryview, header: Header, floats: int) -> tuple[int, np.ndarray, np.ndarray, np.ndarray, np.ndarray,
                                                                           np.ndarray, int]:
    """Read the body of a `vector` FST file with `floats` floats a weight.

    Returns (start, final, offset, labels, weight, nextstate, end position). Raises ValueError, like `Header.parse`.
    """
    words = np.frombuffer(data, "<i4", (len(data) - header.end) // 4, header.end)
    offset = _scan(words, header.num_states, floats)
    if len(offset) != header.num_states + 1 or offset[-1] < 0:
        raise ValueError(_TRUNCATED)
    state, arc = _places(offset, floats)
    size = (floats + 2) * header.num_states + (floats + 3) * int(offset[-1])
    columns = np.arange(floats)
    final = words[state[:, None] + columns].view(np.float32)
    labels = words[arc[:, None] + np.arange(2)]
    weight = words[arc[:, None] + 2 + columns].view(np.float32)
    nextstate = words[arc + 2 + floats]
    _check(header.start, nextstate, header.num_states)
    if np.isnan(weight).any() or np.isnan(final).any():
        raise ValueError("has weights that are no numbers; make it again")
    return header.start, final, offset, labels, weight, nextstate, header.end + 4 * size


def pack(arc_type: str, start: int, final: np.ndarray, offset: np.ndarray, labels: np.ndarray, weight: np.ndarray,
         nextstate: np.ndarray) -> bytes:
    """Write a whole `vector` FST file as bytes.

    For each state it has the final weight and the number of arcs (int64), then the arcs (ilabel, olabel, weight, nextstate).

    `final` is float32 [S, floats], `labels` int32 [A, 2], `weight` float32 [A, floats].
    """
    num_states, floats = final.shape
    state, arc = _places(offset, floats)
    words = np.zeros((floats + 2) * num_states + (floats + 3) * len(nextstate), "<i4")
    columns = np.arange(floats)
    words[state[:, None] + columns] = np.ascontiguousarray(final, np.float32).view(np.int32)
    words[state + floats] = np.diff(offset)
    words[arc[:, None] + np.arange(2)] = labels
    words[arc[:, None] + 2 + columns] = np.ascontiguousarray(weight, np.float32).view(np.int32)
    words[arc + 2 + floats] = nextstate
    return vector_header(arc_type, EXPANDED_MUTABLE, start, num_states, len(nextstate)) + words.tobytes()


def vector_header(arc_type: str, properties: int, start: int, num_states: int, num_arcs: int) -> bytes:
    """The head of a `vector` file."""
    return _header("vector", arc_type, 2, properties, start, num_states, num_arcs)


def _header(fst_type: str, arc_type: str, version: int, properties: int, start: int, num_states: int, num_arcs: int) -> bytes:
    """The head of a file; OpenFst works out properties whose bits are not set when it needs them."""
    head = MAGIC
    for name in (fst_type, arc_type):
        head += struct.pack("<i", len(name)) + name.encode()
    return head + struct.pack("<iiQqqq", version, 0, properties, start, num_states, num_arcs)
