"""A decoding graph as the search reads it, and the file HCLG.search, which all jobs of a machine share in memory.

The file has the arrays as they lie in memory, so that it is mapped and not read: a page that one job has looked at is there for all.
utils/mkgraph.sh leaves it beside HCLG.fst, for the pdfs of the model that the graph is made for. A graph without one, or for a model
with other pdfs, is made in memory of HCLG.fst.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pykaldist.decode.search import ARC, STATE
from pykaldist.errors import UserError, named
from pykaldist.io.atomic import atomic_open
from pykaldist.io.fst import Fst
from pykaldist.kernels import kernel

FILE = "HCLG.search"
_MAGIC = b"pykaldist search graph 1\0\0\0\0\0\0\0\0"
_HEAD = struct.Struct("<32s16sqqqq")  # magic, model's pdfs, start, pdfs, states, arcs
_ALIGNMENT = 64
_LABEL = np.dtype("<i4")


@dataclass
class SearchGraph:
    """The states and arcs of a graph as `search` takes them: a state's arcs without input first."""

    start: int
    num_pdfs: int
    states: np.ndarray  # STATE [S]
    arcs: np.ndarray  # ARC [A]
    ilabel: np.ndarray  # int32 [A]: transition-ids
    olabel: np.ndarray  # int32 [A]: words

    @classmethod
    def of(cls, fst: Fst, tid2pdf: np.ndarray) -> SearchGraph:
        """Make it of a graph; `tid2pdf` maps transition-ids to pdfs (index 0 is not used).

        Raises UserError for a graph that is empty, or has labels that the model has not.
        """
        if fst.num_states == 0:
            raise UserError("the decoding graph is empty; make it again with utils/mkgraph.sh.")
        if fst.num_arcs and not 0 <= fst.ilabel.min() <= fst.ilabel.max() < len(tid2pdf):
            raise UserError(f"the decoding graph has transition-ids up to {fst.ilabel.max()} where the model has {len(tid2pdf) - 1}; "
                            "make the graph for this model with utils/mkgraph.sh.")
        states, arcs = np.empty(fst.num_states, STATE), np.empty(fst.num_arcs, ARC)
        ilabel, olabel = np.empty(fst.num_arcs, np.int32), np.empty(fst.num_arcs, np.int32)
        most = _epsilons_first(fst.final, fst.offset, fst.ilabel, fst.olabel, fst.weight, fst.nextstate, tid2pdf.astype(np.int32), states,
                               arcs, ilabel, olabel)
        return cls(fst.start, most + 1, states, arcs, ilabel, olabel)

    def write(self, path: str | os.PathLike[str], tid2pdf: np.ndarray) -> None:
        """Write the file, atomically."""
        with atomic_open(path, "wb") as stream:
            stream.write(_HEAD.pack(_MAGIC, _digest(tid2pdf), self.start, self.num_pdfs, len(self.states), len(self.arcs)))
            for column in (self.states, self.arcs, self.ilabel, self.olabel):
                stream.write(bytes(-stream.tell() % _ALIGNMENT))
                stream.write(column.view(np.uint8).data)

    @classmethod
    def map(cls, path: str | os.PathLike[str], tid2pdf: np.ndarray) -> SearchGraph | None:
        """The graph in a file, whose pages all processes share; None where it is for other pdfs. Raises UserError for damage."""
        with named(path), open(path, "rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            head = stream.read(_HEAD.size)
            if len(head) < _HEAD.size or not head.startswith(_MAGIC):
                raise UserError(f"{path} is no graph for the search; make it again with utils/mkgraph.sh.")
            _, digest, start, num_pdfs, num_states, num_arcs = _HEAD.unpack(head)
            if digest != _digest(tid2pdf):
                return None
            data = mmap.mmap(stream.fileno(), size, access=mmap.ACCESS_COPY)  # nothing writes to it; kernels take no read-only arrays
        columns, at = [], _HEAD.size
        for dtype, count in ((STATE, num_states), (ARC, num_arcs), (_LABEL, num_arcs), (_LABEL, num_arcs)):
            at += -at % _ALIGNMENT
            if count < 0 or at + count * dtype.itemsize > size:
                raise UserError(f"{path} is truncated or damaged; make it again with utils/mkgraph.sh.")
            columns.append(np.frombuffer(data, dtype, count, at))
            at += count * dtype.itemsize
        return cls(start, num_pdfs, *columns)


def _digest(tid2pdf: np.ndarray) -> bytes:
    """A checksum of a model's pdfs."""
    return hashlib.blake2b(np.ascontiguousarray(tid2pdf[1:], "<i4").tobytes(), digest_size=16).digest()


@kernel
def _epsilons_first(final: np.ndarray, offset: np.ndarray, ilabel: np.ndarray, olabel: np.ndarray, weight: np.ndarray,
                    nextstate: np.ndarray, tid2pdf: np.ndarray, states: np.ndarray, arcs: np.ndarray, to_ilabel: np.ndarray,
                    to_olabel: np.ndarray) -> int:
    """Fill the arrays of a search graph; returns the greatest pdf."""
    most = -1
    for s in range(len(final)):
        to = offset[s]
        states[s].begin, states[s].end, states[s].final = offset[s], offset[s + 1], final[s]
        for emitting in range(2):
            if emitting:
                states[s].emit = to
            for a in range(offset[s], offset[s + 1]):
                if (ilabel[a] != 0) == (emitting == 1):
                    pdf = tid2pdf[ilabel[a]] if emitting else np.int32(-1)
                    arcs[to].nextstate, arcs[to].weight, arcs[to].pdf = nextstate[a], weight[a], pdf
                    to_ilabel[to], to_olabel[to] = ilabel[a], olabel[a]
                    most = max(most, pdf)
                    to += 1
    return most


def read_search_graph(graph_dir: str | os.PathLike[str], tid2pdf: np.ndarray) -> SearchGraph:
    """The graph of a directory for a model's pdfs: HCLG.search mapped, or made of HCLG.fst where that is newer or for other pdfs."""
    graph, path = Path(graph_dir) / "HCLG.fst", Path(graph_dir) / FILE
    current = path.is_file() and not (graph.is_file() and graph.stat().st_mtime_ns > path.stat().st_mtime_ns)
    found = SearchGraph.map(path, tid2pdf) if current else None
    return found or SearchGraph.of(Fst.read(graph), tid2pdf)
