"""Kaldi's compact lattices (arc type `compactlattice44`), as its decoders write them, expanded to one transition-id an arc.

In the file an arc has a word and a weight (graph cost, acoustic cost, string of transition-ids), and so has a state's final weight. Here an
arc with n > 1 transition-ids becomes a chain of n arcs, the first with the word and the costs, and a final weight becomes such a chain into
one final state, the last.
"""

from __future__ import annotations

import numba
import numpy as np

from pykaldist.io.fst import Header


@numba.njit(cache=True)
def _measure(words: np.ndarray, num_states: int) -> tuple[np.ndarray, int, int]:
    """(new number of each state, new number of arcs, words read); the last is -1 where the data end too early or make no sense."""
    number = np.zeros(num_states + 1, np.int64)
    arcs = pos = 0
    for s in range(num_states):
        chain = 0
        left = 1
        read_final = True
        while left > 0:
            head = 0 if read_final else 2
            if pos + head + 3 > len(words):
                return number, 0, -1
            length = np.int64(words[pos + head + 2])
            after = pos + head + 3 + length
            if length < 0 or after + (2 if read_final else 1) > len(words):
                return number, 0, -1
            if read_final:
                left = np.int64(words[after]) + 1
                if left < 1 or words[after + 1] != 0:
                    return number, 0, -1
                pos = after + 2
                if words[pos - 5 - length] != 0x7F800000:  # inf: not final
                    arcs += max(length, 1)
                    chain += max(length, 1) - 1
                read_final = False
            else:
                target = words[after]
                if target < 0 or target >= num_states:
                    return number, 0, -1
                pos = after + 1
                arcs += max(length, 1)
                chain += max(length, 1) - 1
            left -= 1
        number[s + 1] = number[s] + 1 + chain
    return number, arcs, pos


@numba.njit(cache=True)
def _expand(words: np.ndarray, floats: np.ndarray, number: np.ndarray, arcs: int) -> tuple[
        np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(offset, transition_id, word, graph, acoustic, target) of the expanded lattice."""
    num_states = len(number) - 1
    last = number[num_states]
    offset = np.zeros(last + 2, np.int64)
    transition_id, word, target = np.zeros(arcs, np.int32), np.zeros(arcs, np.int32), np.zeros(arcs, np.int32)
    graph, acoustic = np.zeros(arcs, np.float32), np.zeros(arcs, np.float32)
    pos = at = 0
    for s in range(num_states):
        start = pos
        length = np.int64(words[pos + 2])
        narcs = np.int64(words[pos + 3 + length])
        is_final = words[pos] != 0x7F800000
        # Twice over the weights: first the arcs that leave s itself, then the rest of each chain.
        for rest in range(2):
            pos = start
            link = number[s] + 1  # the next state of a chain
            for k in range(narcs + 1):
                head = 0 if k == 0 else 2
                length = np.int64(words[pos + head + 2])
                string = pos + head + 3
                after = string + length
                if k > 0 or is_final:
                    end = last if k == 0 else number[words[after]]
                    if rest == 0:
                        transition_id[at] = words[string] if length > 0 else 0
                        word[at] = 0 if k == 0 else words[pos]
                        graph[at], acoustic[at] = floats[pos + head], floats[pos + head + 1]
                        target[at] = link if length > 1 else end
                        at += 1
                    for i in range(1, length):
                        if rest == 1:
                            transition_id[at] = words[string + i]
                            target[at] = link + 1 if i + 1 < length else end
                            at += 1
                            offset[link + 1] = at
                        link += 1
                pos = after + (2 if k == 0 else 1)
            if rest == 0:
                offset[number[s] + 1] = at
    offset[last + 1] = at
    return offset, transition_id, word, graph, acoustic, target


def unpack_compact(data: bytes | memoryview, header: Header) -> tuple[
        np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, int, int]:
    """(offset, transition_id, word, graph, acoustic, target, start, end position) of the lattice at `header`.

    The last state is the final one. Raises ValueError, with the rest of a sentence, for damage.
    """
    words = np.frombuffer(data, "<i4", (len(data) - header.end) // 4, header.end)
    number, arcs, size = _measure(words, header.num_states)
    if size < 0:
        raise ValueError("is truncated or damaged; decode again")
    return *_expand(words, words.view(np.float32), number, arcs), int(number[header.start]), header.end + 4 * size
