"""Words aligned with words, with the ties of Kaldi's align-text: it prefers a match or substitution, then a deletion."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pykaldist.kernels import kernel

GAP = "***"


@kernel
def _alignment(ref: np.ndarray, hyp: np.ndarray) -> np.ndarray:
    """Align as Kaldi's LevenshteinAlignment: positions in ref and hyp of each aligned pair, -1 for a gap; int64 [length, 2]."""
    m, n = len(ref), len(hyp)
    cost = np.zeros((m + 1, n + 1), np.int64)
    for i in range(m + 1):
        cost[i, 0] = i
    for j in range(n + 1):
        cost[0, j] = j
    for i in range(1, m + 1):
        for j in range(1, n + 1):
            cost[i, j] = min(cost[i - 1, j - 1] + (ref[i - 1] != hyp[j - 1]), cost[i - 1, j] + 1, cost[i, j - 1] + 1)
    pairs = np.full((m + n, 2), -1, np.int64)
    k, i, j = m + n, m, n
    while i > 0 or j > 0:
        k -= 1
        if i > 0 and j > 0 and cost[i - 1, j - 1] + (ref[i - 1] != hyp[j - 1]) <= min(cost[i - 1, j], cost[i, j - 1]) + 1:
            i, j = i - 1, j - 1
            pairs[k, 0], pairs[k, 1] = i, j
        elif j == 0 or (i > 0 and cost[i - 1, j] <= cost[i, j - 1]):
            i -= 1
            pairs[k, 0] = i
        else:
            j -= 1
            pairs[k, 1] = j
    return pairs[k:]


def numbers(*sentences: Sequence[str]) -> list[np.ndarray]:
    """Words as integers, the same word always the same."""
    ids: dict[str, int] = {}
    return [np.array([ids.setdefault(word, len(ids)) for word in words], np.int64) for words in sentences]


def align(ref: Sequence[str], hyp: Sequence[str]) -> list[tuple[str, str]]:
    """Align words as align-text does: pairs, with `***` in a gap."""
    pairs = align_places(ref, hyp)
    return [(ref[i] if i >= 0 else GAP, hyp[j] if j >= 0 else GAP) for i, j in pairs]


def align_places(ref: Sequence[str], hyp: Sequence[str]) -> list[tuple[int, int]]:
    """Align words as `align` does: pairs of places in `ref` and in `hyp`, -1 in a gap."""
    return [(i, j) for i, j in _alignment(*numbers(ref, hyp)).tolist()]
