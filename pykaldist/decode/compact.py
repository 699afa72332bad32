"""Reader and writer of the body of Kaldi's compact lattices (arc type `compactlattice44`), as flat arrays.

For each state: its final weight, the number of its arcs (int64), its arcs. A weight is graph cost, acoustic cost (float32) and a string
of transition-ids (int32 length, then the ids); an arc is its word, twice, its weight and the next state. A state that is not final has
infinite costs. Source: Kaldi's fstext/lattice-weight.h and OpenFst's vector-fst.h.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pykaldist.io.fst import EXPANDED_MUTABLE, Header, vector_header
from pykaldist.kernels import kernel

ARC_TYPE = "compactlattice44"
_ACCEPTOR, _NO_EPSILONS, _WEIGHTED = 0x10000, 0x0A800000, 0x100000000  # OpenFst's fst/properties.h


@kernel
def _measure(words: np.ndarray, num_states: int) -> tuple[int, int, int]:
    """Count the arcs, the transition-ids and the words of a body; the last is -1 where the data end too early or make no sense."""
    arcs = ids = pos = 0
    for _ in range(num_states):
        if pos + 3 > len(words):
            return 0, 0, -1
        length: Any = np.int64(words[pos + 2])
        if length < 0 or pos + 5 + length > len(words):
            return 0, 0, -1
        ids += length
        pos += 5 + length
        narcs: Any = np.int64(words[pos - 2])
        if narcs < 0 or words[pos - 1] != 0:
            return 0, 0, -1
        for _ in range(narcs):
            if pos + 5 > len(words):
                return 0, 0, -1
            length = np.int64(words[pos + 4])
            if length < 0 or pos + 6 + length > len(words) or words[pos] != words[pos + 1]:
                return 0, 0, -1
            ids += length
            pos += 6 + length
        arcs += narcs
    return arcs, ids, pos


@kernel
def _read(words: np.ndarray, floats: np.ndarray, num_states: int, arcs: int, ids: int) -> tuple[
        np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    offset, string = np.zeros(num_states + 1, np.int64), np.zeros(arcs + num_states + 1, np.int64)
    word, target = np.empty(arcs, np.int32), np.empty(arcs, np.int32)
    cost = np.empty((arcs + num_states, 2), np.float32)
    # Strings stand arcs first, then states; their lengths give the places.
    pos = at = 0
    for s in range(num_states):
        cost[arcs + s, 0], cost[arcs + s, 1] = floats[pos], floats[pos + 1]
        string[arcs + s + 1] = words[pos + 2]
        pos += 5 + words[pos + 2]
        for _ in range(words[pos - 2]):
            word[at] = words[pos]
            cost[at, 0], cost[at, 1] = floats[pos + 2], floats[pos + 3]
            string[at + 1] = words[pos + 4]
            pos += 6 + words[pos + 4]
            target[at] = words[pos - 1]
            at += 1
        offset[s + 1] = at
    for i in range(len(string) - 1):
        string[i + 1] += string[i]
    transition_ids = np.empty(ids, np.int32)
    pos = at = 0
    for s in range(num_states):
        begin, end = string[arcs + s], string[arcs + s + 1]
        for i in range(end - begin):  # here and below: a loop, as slices take long to compile
            transition_ids[begin + i] = words[pos + 3 + i]
        pos += 5 + end - begin
        for _ in range(words[pos - 2]):
            begin, end = string[at], string[at + 1]
            for i in range(end - begin):
                transition_ids[begin + i] = words[pos + 5 + i]
            pos += 6 + end - begin
            at += 1
    return offset, word, cost, target, string, transition_ids


@kernel
def _write(offset: np.ndarray, word: np.ndarray, cost: np.ndarray, target: np.ndarray, string: np.ndarray,
           transition_ids: np.ndarray) -> np.ndarray:
    arcs, num_states = len(word), len(offset) - 1
    words = np.zeros(5 * num_states + 6 * arcs + len(transition_ids), np.int32)
    floats = words.view(np.float32)
    pos = 0
    for s in range(num_states):
        begin, end = string[arcs + s], string[arcs + s + 1]
        floats[pos], floats[pos + 1] = cost[arcs + s, 0], cost[arcs + s, 1]
        words[pos + 2] = end - begin
        for i in range(end - begin):
            words[pos + 3 + i] = transition_ids[begin + i]
        pos += 5 + end - begin
        words[pos - 2] = offset[s + 1] - offset[s]
        for a in range(offset[s], offset[s + 1]):
            begin, end = string[a], string[a + 1]
            words[pos] = words[pos + 1] = word[a]
            floats[pos + 2], floats[pos + 3] = cost[a, 0], cost[a, 1]
            words[pos + 4] = end - begin
            for i in range(end - begin):
                words[pos + 5 + i] = transition_ids[begin + i]
            pos += 6 + end - begin
            words[pos - 1] = target[a]
    return words


def unpack_compact(data: bytes | memoryview, header: Header) -> tuple[
        np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, int]:
    """Read the lattice at `header`: (offset, word, cost, target, string, transition_ids, end position); see `Lattice`.

    `cost` is [arcs + states, 2], graph and acoustic costs of arcs and then of final states. Raises ValueError, with the rest of a sentence,
    for damage.
    """
    words = np.frombuffer(data, "<i4", (len(data) - header.end) // 4, header.end)
    arcs, ids, size = _measure(words, header.num_states)
    if size < 0:
        raise ValueError("is truncated or damaged; decode again")
    return *_read(words, words.view(np.float32), header.num_states, arcs, ids), header.end + 4 * size


def pack_compact(offset: np.ndarray, word: np.ndarray, cost: np.ndarray, target: np.ndarray, string: np.ndarray,
                 transition_ids: np.ndarray) -> bytes:
    """Write a whole file as bytes, with the header that Kaldi's decoders write; state 0 starts."""
    properties = EXPANDED_MUTABLE | _ACCEPTOR | (_NO_EPSILONS if word.all() else 0) | (_WEIGHTED if cost[: len(word)].any() else 0)
    return vector_header(ARC_TYPE, properties, 0, len(offset) - 1, 0) + _write(offset, word, cost, target, string, transition_ids).tobytes()
