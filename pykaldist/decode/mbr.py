"""Minimum Bayes risk decoding: the word sequence R whose expected edit distance from a lattice's paths is least.

H. Xu, D. Povey, L. Mangu, J. Zhu, "Minimum Bayes Risk decoding and system combination based on a recursion for edit distance", Computer
Speech and Language 25, 2011. R has a place for no word before, between and behind its words. With d(n, q) the expected edit distance of
the paths to state n from the first q places of R (see confidence.py, whose recursion this is), the statistics are

    gamma(q, w)    the probability that place q of R is aligned with word w (0: no word)
    begin, end     (q, w), the expected first and last frame where it is

and each round takes the most probable word for every place, until none changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pykaldist.decode.lattice import Lattice
from pykaldist.decode.paths import best_path, check_not_empty, scaled_costs
from pykaldist.kernels import kernel

DELTA = 1e-5  # by which leaving a word of a path out is dearer than taking another, so that ties have one answer
MAX_ROUNDS = 100


@dataclass
class MbrResult:
    """What minimum Bayes risk decoding finds: the words (numbers), their confidences and times in frames, and the expected edit distance.

    `places` has, for each place of R, the pairs (word, probability), the most probable first.
    """

    words: list[int]
    confidences: list[float]
    times: list[tuple[float, float]]
    risk: float
    places: list[list[tuple[int, float]]]
    place_times: list[tuple[float, float]]


@kernel
def _statistics(source: np.ndarray, target: np.ndarray, word: np.ndarray, cost: np.ndarray, time: np.ndarray, places: np.ndarray,
                words: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """gamma, and gamma times first and last frames, each [Q + 1, words]; and the expected edit distance.

    Arcs are in the topological order of their sources, words are numbered from 0 (no word), the last state is the only end.
    """
    states, length = len(time), len(places)
    alpha = np.full(states, -np.inf)
    alpha[0] = 0.0
    for a in range(len(source)):
        alpha[target[a]] = np.logaddexp(alpha[target[a]], alpha[source[a]] - cost[a])
    order = np.argsort(target, kind="mergesort")
    distance = np.zeros((states, length + 1))
    for q in range(1, length + 1):
        distance[0, q] = distance[0, q - 1] + (places[q - 1] != 0)
    along = np.zeros(length + 1)
    choice = np.zeros(length + 1, np.int64)
    for i in range(len(order)):
        a = order[i]
        s, n, w = source[a], target[a], word[a]
        share = np.exp(alpha[s] - cost[a] - alpha[n])
        left_out = 1 + DELTA if w != 0 else 0.0
        for q in range(length + 1):
            along[q] = distance[s, q] + left_out
            if q > 0:
                same = distance[s, q - 1] + (w != places[q - 1])
                inserted = along[q - 1] + (places[q - 1] != 0)
                along[q] = min(same, along[q], inserted)
            distance[n, q] += share * along[q]
    gamma = np.zeros((length + 1, words))
    begin, end = np.zeros((length + 1, words)), np.zeros((length + 1, words))
    flow = np.zeros((states, length + 1))
    flow[states - 1, length] = 1.0
    for i in range(len(order) - 1, -1, -1):
        a = order[i]
        s, n, w = source[a], target[a], word[a]
        share = np.exp(alpha[s] - cost[a] - alpha[n])
        left_out = 1 + DELTA if w != 0 else 0.0
        along[0] = distance[s, 0] + left_out
        for q in range(1, length + 1):
            same = distance[s, q - 1] + (w != places[q - 1])
            out = distance[s, q] + left_out
            inserted = along[q - 1] + (places[q - 1] != 0)
            if same <= out and same <= inserted:
                choice[q], along[q] = 1, same
            elif out <= inserted and out < same:
                choice[q], along[q] = 2, out
            else:
                choice[q], along[q] = 3, inserted
        carried = 0.0
        for q in range(length, 0, -1):
            here = carried + share * flow[n, q]
            carried = 0.0
            if choice[q] == 1:
                flow[s, q - 1] += here
                gamma[q, w] += here
                begin[q, w] += here * time[s]
                end[q, w] += here * time[n]
            elif choice[q] == 2:
                flow[s, q] += here
            else:
                carried = here
                gamma[q, 0] += here
                begin[q, 0] += here * time[n]
                end[q, 0] += here * time[n]
        flow[s, 0] += carried + share * flow[n, 0]
    carried = 0.0
    for q in range(length, 0, -1):  # what is aligned with nothing before the first arc
        carried += flow[0, q]
        gamma[q, 0] += carried
    return gamma, begin, end, distance[states - 1, length]


def mbr_decode(lattice: Lattice, acoustic_scale: float, lm_scale: float = 1.0, decode: bool = True, words: Sequence[int] | None = None,
               print_silence: bool = False) -> MbrResult:
    """Decode a lattice for the least expected number of word errors, from its best path, or from `words`.

    Without `decode`, the words stay, and confidences and times are found for them. Raises ValueError where the lattice has no path.
    """
    check_not_empty(lattice)
    hypothesis = list(best_path(lattice, acoustic_scale, lm_scale).words if words is None else words)
    cost, final = scaled_costs(lattice, acoustic_scale, lm_scale)
    ends = np.flatnonzero(final < np.inf)
    own = np.unique(np.concatenate([[0], lattice.word, np.array(hypothesis, np.int32)]))
    source = np.concatenate([lattice.source, ends])
    order = np.argsort(source, kind="stable")
    target, word, costs = (np.concatenate(pair)[order] for pair in (
        (lattice.target.astype(np.int64), np.full(len(ends), lattice.num_states)),
        (np.searchsorted(own, lattice.word), np.zeros(len(ends), np.int64)), (cost, final[ends])))
    time = np.concatenate([lattice.frame, [lattice.num_frames]]).astype(np.float64)
    for _ in range(MAX_ROUNDS):
        numbers = np.searchsorted(own, np.array(hypothesis, np.int64))
        places = np.zeros(2 * len(numbers) + 1, np.int64)
        places[1::2] = numbers
        gamma, begin, end, risk = _statistics(source[order], target, word, costs, time, places, len(own))
        gamma, begin, end = gamma[1:], begin[1:], end[1:]
        best = np.argmax(gamma, axis=1) if decode else places
        rows = np.arange(len(places))
        gain = (gamma[rows, best] - gamma[rows, places]).sum()
        hypothesis = [int(own[w]) for w in best if w]
        if gain <= 0:
            break
    shown = [q for q, w in enumerate(best.tolist()) if w or print_silence]
    share = np.maximum(gamma, 1e-300)
    times = _apart([(float(begin[q, best[q]] / share[q, best[q]]), float(end[q, best[q]] / share[q, best[q]])) for q in shown])
    kept = [[(int(own[w]), float(gamma[q, w])) for w in np.argsort(-gamma[q], kind="stable") if gamma[q, w] > 0] for q in rows]
    return MbrResult([int(own[best[q]]) for q in shown], [float(gamma[q, best[q]]) for q in shown], times, float(risk), kept,
                     [(float(b), float(e)) for b, e in zip(begin.sum(1), end.sum(1), strict=True)])


def _apart(times: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Times of words in order; two that overlap share their span in the ratio of their lengths."""
    done: list[tuple[float, float]] = []
    for begin, end in times:
        if done and done[-1][1] > begin:
            first, second = done[-1][1] - done[-1][0], end - begin
            low = max(done[-2][1] if len(done) > 1 else 0.0, min(done[-1][0], begin))
            high = max(done[-1][1], end)
            middle = low + (high - low) * first / (first + second) if first > 0 else low
            done[-1], begin, end = (low, middle), middle, high
        done.append((begin, end))
    return done
