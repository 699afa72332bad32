"""Lattices as tables: by rspecifier and wspecifier, binary or text, compact or state-level.

A compact lattice as text has lines `from to word graph,acoustic,ids` and `state graph,acoustic,ids`, with transition-ids joined by `_`; a
state-level one `from to id word graph,acoustic`. An entry begins behind its key on a new line, and ends with an empty line.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import IO

import numpy as np

from pykaldist import kernels
from pykaldist.decode.lattice import Lattice, lattices_in
from pykaldist.errors import AGAIN, UserError
from pykaldist.io.entries import DAMAGE, reason
from pykaldist.io.fst import pack
from pykaldist.io.table_streams import archive_sources, read_table
from pykaldist.io.xfilenames import open_rxfilename

SMALL = 1 << 20  # bytes: with so much Python itself is done sooner than numba is loaded
LIGHT = 1 << 24  # bytes: likewise, where no more is done than to look at each arc once


def read_lattice_table(rspecifier: str, little: int = SMALL, empty: bool = False) -> Iterator[tuple[str, Lattice]]:
    """Iterate over (utterance, lattice) of a table; raises UserError for damage, and for a lattice without a path.

    So does an archive of no bytes, unless it may be `empty`.

    While an archive of at most `little` bytes is read, kernels run as the Python that they are.
    """
    sources = archive_sources(rspecifier)
    if sources is None:  # an scp file
        yield from read_table(rspecifier, _read_one)
        return
    for name in sources:
        try:
            with open_rxfilename(name) as stream:
                data = stream.read()
        except DAMAGE as error:
            raise UserError(f"{name} is truncated or damaged ({reason(error)}); {AGAIN}.") from error
        if not data:
            if empty:
                continue
            raise UserError(f"{name} has no lattices; see whether what makes them has failed.")
        key_end = data.find(b" ")
        text = key_end > 0 and data[key_end + 1 : key_end + 2] in (b"\n", b"\r")
        with kernels.interpreted_where(len(data) <= little):
            yield from _text_entries(data, name) if text else lattices_in(data, name)


def _read_one(stream: io.BufferedReader) -> Lattice:
    data = stream.read()
    return Lattice.parse(data)[0].in_order()


def _text_entries(data: bytes, name: str) -> Iterator[tuple[str, Lattice]]:
    for entry in re.split(r"\n[ \t]*\n", data.decode("utf-8").strip("\n")):
        head, *lines = entry.strip("\n").split("\n")
        key = head.strip()
        try:
            lattice = _parse_text([line.split() for line in lines if line.strip()])
        except (ValueError, IndexError) as error:
            raise UserError(f"{name}, utterance {key}: no readable lattice ({error}); {AGAIN}.") from error
        yield key, lattice


def _parse_text(rows: list[list[str]]) -> Lattice:
    """A lattice of the lines of its text, split to columns; the first line's state starts it."""
    ids: list[list[int]] = []
    arcs: list[tuple[int, int, int, float, float]] = []
    ends: dict[int, tuple[float, float, list[int]]] = {}
    for row in rows:
        if len(row) <= 2:  # a final state
            graph, acoustic, own = _weight(row[1] if len(row) == 2 else "")
            ends[int(row[0])] = (graph, acoustic, own)
            continue
        compact = len(row) == 3 or (len(row) == 4 and row[3].count(",") != 1)
        word = int(row[2] if compact else row[3])
        graph, acoustic, own = _weight(row[3] if compact and len(row) == 4 else row[4] if len(row) == 5 else "")
        arcs.append((int(row[0]), int(row[1]), word, graph, acoustic))
        ids.append(own if compact else [int(row[2])] if int(row[2]) else [])
    states = 1 + max([max(arc[:2]) for arc in arcs] + list(ends), default=-1)
    source = np.array([arc[0] for arc in arcs], np.int64)
    order = np.argsort(source, kind="stable")
    offset = np.zeros(states + 1, np.int64)
    np.cumsum(np.bincount(source, minlength=states), out=offset[1:])
    final = np.full((2, states), np.inf, np.float32)
    strings = [ids[i] for i in order.tolist()] + [ends.get(s, (0, 0, []))[2] for s in range(states)]
    for s, (graph, acoustic, _) in ends.items():
        final[:, s] = graph, acoustic
    string = np.concatenate([[0], np.cumsum([len(x) for x in strings])]).astype(np.int64)
    column = [np.array([arc[i] for arc in arcs])[order] if arcs else np.zeros(0) for i in range(5)]
    lattice = Lattice(offset, column[2].astype(np.int32), column[3].astype(np.float32), column[4].astype(np.float32),
                      column[1].astype(np.int32), final[0], final[1], string,
                      np.array([i for x in strings for i in x], np.int32))
    return lattice.in_order(int(rows[0][0]))


def _weight(text: str) -> tuple[float, float, list[int]]:
    graph, _, rest = text.partition(",")
    acoustic, _, ids = rest.partition(",")
    return float(graph or 0), float(acoustic or 0), [int(i) for i in ids.split("_") if i]


def write_compact(stream: IO[bytes], lattice: Lattice, binary: bool) -> None:
    """Write a compact lattice."""
    if binary:
        stream.write(lattice.to_bytes())
        return
    lines, arcs = [""], lattice.num_arcs
    for state in range(lattice.num_states):
        for a in range(lattice.offset[state], lattice.offset[state + 1]):
            lines.append(f"{state}\t{lattice.target[a]}\t{lattice.word[a]}\t{_text(lattice.graph[a], lattice.acoustic[a])},"
                         + "_".join(map(str, lattice.ids(a).tolist())))
        if lattice.final[state] < np.inf:
            lines.append(f"{state}\t{_text(lattice.final[state], lattice.final_acoustic[state])},"
                         + "_".join(map(str, lattice.ids(arcs + state).tolist())))
    stream.write(("\n".join(lines) + "\n\n").encode())


def _text(graph: float, acoustic: float) -> str:
    return f"{graph:.7g},{acoustic:.7g}"


def write_state_level(stream: IO[bytes], lattice: Lattice, binary: bool) -> None:
    """Write a lattice as a state-level one: an arc a transition-id, words and costs on the first of their arcs."""
    length = np.diff(lattice.string)
    arcs, states = lattice.num_arcs, lattice.num_states
    ends = np.flatnonzero((lattice.final < np.inf) & (length[arcs:] > 0))  # these take their last ids on the way to a state of their own
    parts = np.concatenate([np.maximum(length[:arcs], 1), length[arcs + ends]])
    owner = np.repeat(np.arange(len(parts)), parts)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(parts) - parts, parts)
    inner = np.cumsum(place > 0) + states - 1  # the state in which an arc that is not the first of its owner begins
    begin = np.concatenate([lattice.source, ends])
    new_end = states + int((place > 0).sum()) + np.arange(len(ends))
    goal = np.concatenate([lattice.target, new_end])
    last = place == parts[owner] - 1
    source = np.where(place > 0, inner, begin[owner])
    target = np.where(last, goal[owner], inner + 1)
    first = place == 0
    key = np.concatenate([np.arange(arcs), arcs + ends])
    some = length[key[owner]] > 0
    tid = np.zeros(len(owner), np.int32)
    tid[some] = lattice.transition_ids[(lattice.string[key[owner]] + place)[some]]
    word = np.where(first, np.concatenate([lattice.word, np.zeros(len(ends), np.int32)])[owner], 0)
    cost = np.stack([np.concatenate([lattice.graph, lattice.final[ends]])[owner],
                     np.concatenate([lattice.acoustic, lattice.final_acoustic[ends]])[owner]], 1) * first[:, None]
    total = states + int((place > 0).sum()) + len(ends)
    final = np.full((total, 2), np.inf, np.float32)
    final[:states] = np.stack([lattice.final, lattice.final_acoustic], 1)
    final[ends] = np.inf
    final[new_end] = 0
    order = np.argsort(source, kind="stable")
    offset = np.zeros(total + 1, np.int64)
    np.cumsum(np.bincount(source, minlength=total), out=offset[1:])
    if binary:
        stream.write(pack("lattice4", 0, final, offset, np.stack([tid, word], 1)[order].astype(np.int32), cost[order].astype(np.float32),
                          target[order].astype(np.int32)))
        return
    lines = [""]
    for state in range(total):
        lines += [f"{state}\t{target[a]}\t{tid[a]}\t{word[a]}\t{_text(cost[a, 0], cost[a, 1])}"
                  for a in order[offset[state] : offset[state + 1]].tolist()]
        if final[state, 0] < np.inf:
            lines.append(f"{state}\t{_text(final[state, 0], final[state, 1])}")
    stream.write(("\n".join(lines) + "\n\n").encode())
