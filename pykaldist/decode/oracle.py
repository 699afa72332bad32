"""The oracle path of a lattice: the one whose words are nearest to a reference.

Dynamic programming over pairs (state, words of the reference consumed): an arc without a word costs nothing, one with a word is an
insertion, or consumes a word of the reference at cost 0 if they are the same and 1 if not; consuming one without an arc is a deletion.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pykaldist.decode.lattice import Lattice
from pykaldist.decode.paths import LatticePath, check_not_empty, path_of
from pykaldist.kernels import kernel

_DELETION = -2


@kernel
def _distances(offset: np.ndarray, word: np.ndarray, target: np.ndarray, ref: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The fewest errors on the way to each pair, and the arc behind which it was reached (`arc` or _DELETION).

    Both are [S, len(ref) + 1].
    """
    states, length = len(offset) - 1, len(ref) + 1
    errors = np.full((states, length), np.int32(1 << 30))
    back = np.full((states, length), np.int64(-1))
    errors[0, 0] = 0
    for s in range(states):
        for j in range(1, length):
            if errors[s, j - 1] + 1 < errors[s, j]:
                errors[s, j] = errors[s, j - 1] + 1
                back[s, j] = _DELETION
        for a in range(offset[s], offset[s + 1]):
            t, w = target[a], word[a]
            for j in range(length):
                if errors[s, j] + (w != 0) < errors[t, j]:
                    errors[t, j] = errors[s, j] + (w != 0)
                    back[t, j] = a
                if w != 0 and j > 0 and errors[s, j - 1] + (w != ref[j - 1]) <= errors[t, j]:
                    errors[t, j] = errors[s, j - 1] + (w != ref[j - 1])
                    back[t, j] = a
    return errors, back


def oracle_words(lattice: Lattice, reference: Sequence[int]) -> list[int]:
    """Find the words of the path with the fewest errors against `reference`; raises ValueError where there is no path."""
    return oracle_path(lattice, reference).words


def oracle_path(lattice: Lattice, reference: Sequence[int]) -> LatticePath:
    """Find the path with the fewest errors against `reference`; raises ValueError where there is no path."""
    check_not_empty(lattice)
    ref = np.array(reference, np.int32)
    errors, back = _distances(lattice.offset, lattice.word, lattice.target, ref)
    ends = np.flatnonzero((lattice.final < np.inf) & (errors[:, -1] < 1 << 30))
    if len(ends) == 0:
        raise ValueError("the lattice has no path to a final state")
    source = lattice.source
    state, consumed = int(ends[errors[ends, -1].argmin()]), len(ref)
    end, arcs = state, list[int]()
    while state > 0 or consumed > 0:
        arc = int(back[state, consumed])
        if arc == _DELETION:
            consumed -= 1
            continue
        before, word = int(source[arc]), int(lattice.word[arc])
        arcs.append(arc)
        if word:
            step = consumed > 0 and errors[state, consumed] == errors[before, consumed - 1] + (word != ref[consumed - 1])
            consumed -= int(step)
        state = before
    return path_of(lattice, arcs[::-1], end)
