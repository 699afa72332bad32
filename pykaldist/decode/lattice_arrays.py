"""Lattices of the decoder as the arrays that training objectives take (`frames/lattices.py`)."""

from __future__ import annotations

import numpy as np

from pykaldist.decode.lattice import Lattice
from pykaldist.frames.lattices import Lattices
from pykaldist.kernels import kernel


@kernel
def _reached(offset: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Whether each state can be reached from state 0; states are in topological order."""
    reached = np.zeros(len(offset) - 1, np.bool_)
    reached[0] = True
    for s in range(len(reached)):
        if reached[s]:
            for a in range(offset[s], offset[s + 1]):
                reached[target[a]] = True
    return reached


def as_arrays(lattice: Lattice) -> Lattices:
    """The lattice as arrays, without states that are on no path.

    Raises ValueError with a clause where it has no path, or paths of different lengths.
    """
    if lattice.num_states == 0 or not lattice.reaches_end[0]:
        raise ValueError("the lattice has no path to a final state")
    lattice = lattice.select(np.flatnonzero(lattice.reaches_end & _reached(lattice.offset, lattice.target)))
    ends, arcs, states = np.flatnonzero(lattice.final < np.inf), lattice.num_arcs, lattice.num_states
    source = np.concatenate([lattice.source, ends])
    order = np.argsort(source, kind="stable")
    source = source[order]
    target = np.concatenate([lattice.target, np.full(len(ends), states)])[order]
    graph, acoustic = (np.concatenate([of_arcs, final[ends]])[order].astype(np.float32)
                       for of_arcs, final in ((lattice.graph, lattice.final), (lattice.acoustic, lattice.final_acoustic)))
    strings = np.concatenate([np.arange(arcs), arcs + ends])[order]  # of transition-ids, in the lattice
    length = np.diff(lattice.string)[strings]
    string = np.concatenate([[0], np.cumsum(length)]).astype(np.int64)
    place = np.arange(string[-1]) - np.repeat(string[:-1], length)  # of each entry in its arc
    frames = np.append(lattice.frame, lattice.num_frames)
    if (frames[source] + length != frames[target]).any():
        raise ValueError("the lattice has paths of different numbers of frames")
    ids = lattice.transition_ids[np.repeat(lattice.string[strings], length) + place].astype(np.int64)
    most = int(ids.max(initial=0)) + 1
    cells, entry = np.unique((np.repeat(frames[source], length) + place) * most + ids, return_inverse=True)
    frame, transition_id = np.divmod(cells, most)
    of_states, of_arcs, of_cells, of_frames = (np.array([0, n], np.int64) for n in (states + 1, len(source), len(cells), frames[-1]))
    return Lattices(of_states, of_arcs, of_cells, of_frames, source.astype(np.int32), target.astype(np.int32), graph, acoustic, string,
                    entry.reshape(-1).astype(np.int32), frame.astype(np.int32), transition_id.astype(np.int32),
                    np.concatenate([lattice.word, np.zeros(len(ends), np.int32)])[order].astype(np.int32))
