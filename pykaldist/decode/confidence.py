"""Confidences of the words of a hypothesis: the share of a lattice's paths that have the word in that place.

"That place" is by edit distance, not by time: gamma(q) is the probability that the q-th word of the hypothesis is aligned with itself when
the hypothesis R is aligned with a path drawn from the lattice. With p(a) the probability of arc a given the state that it enters, and
d(s, q) the expected edit distance of the paths to state s and the first q words of R,

    d_a(q) = min( d(source, q - 1) + [w_a != r_q],  d(source, q) + [w_a != none] + DELTA,  d_a(q - 1) + 1 ),     d(n, q) = sum p(a) d_a(q)

over the arcs a into n; gamma follows the choices of the minimum backwards. Expected distances stand for those of each path: this is exact
where no two paths meet, and elsewhere what Kaldi's lattice-to-ctm-conf --decode-mbr=false computes, save that the hypothesis has no places
for insertions. H. Xu, D. Povey, L. Mangu, J. Zhu, "Minimum Bayes Risk decoding and system combination based on a recursion for edit
distance", Computer Speech and Language 25 (2011), sections 4 and 5.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pykaldist.decode.lattice import Lattice
from pykaldist.decode.paths import check_not_empty, scaled_costs
from pykaldist.kernels import kernel

_DELTA = 1e-5  # an insertion costs a little more than a substitution, so that ties fall one way
_MATCH, _INSERTION, _DELETION = 0, 1, 2


@kernel
def _arc_distances(before: np.ndarray, word: int, ref: np.ndarray, distance: np.ndarray, choice: np.ndarray) -> None:
    insertion = _DELTA + (word != 0)
    distance[0] = before[0] + insertion
    choice[0] = _INSERTION
    for q in range(1, len(before)):
        distance[q] = before[q - 1] + (word != ref[q - 1])
        choice[q] = _MATCH
        if before[q] + insertion < distance[q]:
            distance[q] = before[q] + insertion
            choice[q] = _INSERTION
        if distance[q - 1] + 1 < distance[q]:
            distance[q] = distance[q - 1] + 1
            choice[q] = _DELETION


@kernel
def _gamma(source: np.ndarray, target: np.ndarray, word: np.ndarray, cost: np.ndarray, num_states: int, ref: np.ndarray) -> tuple[
        np.ndarray, float]:
    """Compute (gamma [len(ref)], expected edit distance); arcs are sorted by source, the last state is the only end."""
    length = len(ref) + 1
    alpha = np.full(num_states, -np.inf)
    alpha[0] = 0.0
    for a in range(len(source)):
        alpha[target[a]] = np.logaddexp(alpha[target[a]], alpha[source[a]] - cost[a])
    forward = np.zeros((num_states, length))
    forward[0] = np.arange(length)
    distance, choice = np.empty(length), np.empty(length, np.int64)
    for a in range(len(source)):
        s, t = source[a], target[a]
        if alpha[t] > -np.inf:
            _arc_distances(forward[s], word[a], ref, distance, choice)
            forward[t] += np.exp(alpha[s] - cost[a] - alpha[t]) * distance
    backward = np.zeros((num_states, length))
    backward[-1, -1] = 1.0
    gamma = np.zeros(length - 1)
    for a in range(len(source) - 1, -1, -1):
        s, t = source[a], target[a]
        if alpha[t] == -np.inf:
            continue
        _arc_distances(forward[s], word[a], ref, distance, choice)
        flow = np.exp(alpha[s] - cost[a] - alpha[t]) * backward[t]
        for q in range(length - 1, -1, -1):
            if choice[q] == _MATCH:
                backward[s, q - 1] += flow[q]
                gamma[q - 1] += flow[q] * (word[a] == ref[q - 1])
            elif choice[q] == _INSERTION:
                backward[s, q] += flow[q]
            else:
                flow[q - 1] += flow[q]
    return gamma, forward[-1, -1]


def confidences(lattice: Lattice, words: Sequence[int], acoustic_scale: float, lm_scale: float = 1.0) -> tuple[np.ndarray, float]:
    """Compute the probability of each word of the hypothesis `words`, and the expected edit distance of the lattice's paths from it.

    Raises ValueError where the lattice has no path.
    """
    check_not_empty(lattice)
    cost, final = scaled_costs(lattice, acoustic_scale, lm_scale)
    ends = np.flatnonzero(final < np.inf)
    if len(ends) == 0:
        raise ValueError("the lattice has no path to a final state")
    source = np.concatenate([lattice.source, ends])
    order = np.argsort(source, kind="stable")
    none = np.zeros(len(ends), np.int64)
    target, word, costs = (np.concatenate(pair)[order] for pair in (
        (lattice.target, none + lattice.num_states), (lattice.word, none), (cost, final[ends])))
    gamma, errors = _gamma(source[order], target, word, costs, lattice.num_states + 1, np.array(words, np.int64))
    return gamma, float(errors)
