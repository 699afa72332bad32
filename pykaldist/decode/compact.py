"""Reader and writer of the body of Kaldi's compact lattices (arc type `compactlattice44`), as flat arrays.

For each state: its final weight, the number of its arcs (int64), its arcs. A weight is graph cost, acoustic cost (float32) and a string
of transition-ids (int32 length, then the ids); an arc is its word, twice, its weight and the next state. A state that is not final has
infinite costs. Source: Kaldi's fstext/lattice-weight.h and OpenFst's vector-fst.h.

Where states and arcs stand is found one after the other; all else is read and written at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pykaldist.errors import DECODING
from pykaldist.io.fst import EXPANDED_MUTABLE, Header, vector_header
from pykaldist.kernels import kernel, python_of

ARC_TYPE = "compactlattice44"
_STATE, _ARC = 5, 6  # words of a state and of an arc, beside their transition-ids
_LITTLE = 1 << 24  # bytes: so many are read sooner by Python itself than numba is loaded
_ACCEPTOR, _NO_EPSILONS, _WEIGHTED = 0x10000, 0x0A800000, 0x100000000  # OpenFst's fst/properties.h


@kernel
def _find_places(words: Any, num_states: int, state_at: Any, arc_at: Any) -> tuple[int, int]:
    """Find the places of states and arcs in a body; returns the number of arcs, and the end: -1 where the data make no sense.

    `words`, `state_at` and `arc_at` are arrays of integers, or memoryviews where this is interpreted.
    """
    arcs, pos, size = 0, 0, len(words)
    for s in range(num_states):
        if pos + _STATE > size:
            return 0, -1
        state_at[s] = pos
        length = words[pos + 2]
        pos += _STATE + length
        if length < 0 or pos > size or words[pos - 2] < 0 or words[pos - 1] != 0:
            return 0, -1
        for _ in range(words[pos - 2]):
            if pos + _ARC > size:
                return 0, -1
            arc_at[arcs] = pos
            arcs += 1
            length = words[pos + 4]
            pos += _ARC + length
            if length < 0 or pos > size:
                return 0, -1
    return arcs, pos


def unpack_compact(data: bytes | memoryview, header: Header) -> tuple[
        np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, int]:
    """Read the lattice at `header`: (offset, word, cost, target, string, transition_ids, end position); see `Lattice`.

    `cost` is [arcs + states, 2], graph and acoustic costs of arcs and then of final states. Raises ValueError, with the rest of a sentence,
    for damage.
    """
    words = np.frombuffer(data, "<i4", (len(data) - header.end) // 4, header.end)
    if header.num_states > len(words) // _STATE:
        raise ValueError(f"is truncated or damaged; decode again ({DECODING})")
    # The lattice ends somewhere in `words`; room that is not used is never touched.
    state_at, arc_at = np.empty(header.num_states, np.int64), np.empty(len(words) // _ARC, np.int64)
    python = python_of(_find_places, len(data) < _LITTLE)
    if python is not None:
        ints = memoryview(data)[header.end:header.end + words.nbytes].cast("i")
        arcs, size = python(ints, header.num_states, state_at.data, arc_at.data)
    else:
        arcs, size = _find_places(words, header.num_states, state_at, arc_at)
    arc_at = arc_at[:max(arcs, 0)].copy()
    word = words[arc_at]
    if size < 0 or (word != words[arc_at + 1]).any():
        raise ValueError(f"is truncated or damaged; decode again ({DECODING})")
    places = np.concatenate([arc_at + 2, state_at])  # of weights, arcs' and then states'
    cost = words[places[:, None] + np.arange(2)].view(np.float32)
    length = words[places + 2].astype(np.int64)
    string = np.concatenate([[0], np.cumsum(length)])
    transition_ids = words[np.repeat(places + 3 - string[:-1], length) + np.arange(string[-1])]
    offset = np.concatenate([[0], np.cumsum(words[state_at + length[arcs:] + 3])]).astype(np.int64)
    return offset, word, cost, words[arc_at + length[:arcs] + 5], string, transition_ids, header.end + 4 * size


def pack_compact(offset: np.ndarray, word: np.ndarray, cost: np.ndarray, target: np.ndarray, string: np.ndarray,
                 transition_ids: np.ndarray) -> bytes:
    """Write a whole file as bytes, with the header that Kaldi's decoders write; state 0 starts."""
    arcs, states = len(word), len(offset) - 1
    length = np.diff(string)
    ahead = np.concatenate([[0], np.cumsum(_ARC + length[:arcs])])  # words of the arcs before each arc
    behind = np.cumsum(_STATE + length[arcs:])  # words of the states up to each state
    state_at = behind - _STATE - length[arcs:] + ahead[offset[:-1]]
    arc_at = ahead[:-1] + np.repeat(behind, np.diff(offset))
    words = np.zeros(_STATE * states + _ARC * arcs + int(string[-1] - string[0]), np.int32)
    places = np.concatenate([arc_at + 2, state_at])
    words.view(np.float32)[places[:, None] + np.arange(2)] = cost
    words[places + 2] = length
    words[np.repeat(places + 3 - string[:-1], length) + np.arange(string[0], string[-1])] = transition_ids[string[0]:string[-1]]
    words[arc_at] = words[arc_at + 1] = word
    words[arc_at + 5 + length[:arcs]] = target
    words[state_at + 3 + length[arcs:]] = np.diff(offset)
    properties = EXPANDED_MUTABLE | _ACCEPTOR | (_NO_EPSILONS if word.all() else 0) | (_WEIGHTED if cost[: arcs].any() else 0)
    return vector_header(ARC_TYPE, properties, 0, states, 0) + words.tobytes()
