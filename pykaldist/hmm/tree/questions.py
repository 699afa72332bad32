"""Questions for a decision tree: sets of phones that sound alike, found from data (Kaldi's cluster-phones and compile-questions).

All phones together are divided in two so that the two Gaussians of the parts are likeliest, each part again, and so on down to single
phones (or sets of phones that are never parted, such as a phone's places in the word). Every set on the way is a question. Dividing in
two is a 2-means in which a phone moves to the other side wherever that raises the likelihood, from several random starts.

`kaldi_questions` begins from the same starts as Kaldi, so that trees are Kaldi's to the last question: phone set i k mod n is on side
i mod 2, where k is the first number that is prime to n, from a number of C's rand() on. The division that gains most is made first.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from pykaldist.hmm.tree.gauss_stats import VARIANCE_FLOOR, log_likelihood
from pykaldist.hmm.tree.tree import PDF_CLASS
from pykaldist.hmm.tree.tree_stats import TreeStats
from pykaldist.kernels import kernel

_STARTS, _SWEEPS, _KALDIS_SWEEPS = 10, 20, 2000
_SAME_GAIN = 1e-12  # relative; below, two divisions are the same one, added up in another order
Questions = Mapping[int, list[frozenset[int]]]  # by the tree's key: sets of values


def automatic_questions(stats: TreeStats, phone_sets: Sequence[Sequence[int]], pdf_classes: Sequence[int],
                        rng: np.random.Generator) -> list[frozenset[int]]:
    """Find sets of phones by top-down clustering of `phone_sets` on the statistics of `pdf_classes` (the middle state of three: 1).

    Phone sets without statistics stand in the question of all phones alone.
    """
    wanted = stats.part(np.isin(stats.values[:, PDF_CLASS], pdf_classes))
    central = wanted.values[:, stats.central]
    sums = np.stack([wanted.sums[np.isin(central, phones)].sum(axis=0) for phones in phone_sets])
    questions = [frozenset(phone for phones in phone_sets for phone in phones)]
    stack = [np.flatnonzero(sums[:, 0] > 0)]
    while stack:
        members = stack.pop()
        questions.append(frozenset(phone for m in members.tolist() for phone in phone_sets[m]))
        if len(members) > 1:
            side = _best_halves(sums[members], rng)
            stack += [members[side], members[~side]]
    return list(dict.fromkeys(question for question in questions if question))


def kaldi_questions(stats: TreeStats, phone_sets: Sequence[Sequence[int]], pdf_classes: Sequence[int]) -> list[frozenset[int]]:
    """Find sets of phones by the same clustering, from the starts of Kaldi's cluster-phones; each of `phone_sets` is one of them."""
    wanted = stats.part(np.isin(stats.values[:, PDF_CLASS], pdf_classes))
    central = wanted.values[:, stats.central]
    sums = np.stack([wanted.sums[np.isin(central, phones)].sum(axis=0) for phones in phone_sets])
    random, questions = _c_rand(), []
    waiting: list[tuple[float, int, np.ndarray, np.ndarray]] = []
    parts = [np.arange(len(sums))]
    while parts:
        for members in parts:
            questions.append(frozenset(phone for m in members.tolist() for phone in phone_sets[m]))
            if len(members) > 1:
                gain, side = _kaldis_halves(sums[members], random)
                if gain > 0:
                    heapq.heappush(waiting, (-gain, len(questions), members, side))
        _, _, members, side = heapq.heappop(waiting) if waiting else (0.0, 0, members[:0], members[:0])
        parts = [members[~side], members[side]] if len(members) else []
    return list(dict.fromkeys([*questions, *map(frozenset, phone_sets)]))


def _c_rand() -> Iterator[int]:
    """The numbers that rand() of the GNU C library gives, from the seed 1."""
    state = [1]
    for _ in range(30):
        state.append(16807 * state[-1] % 0x7FFFFFFF)
    state += state[:3]
    for discarded in itertools.count():
        state.append((state[-31] + state[-3]) & 0xFFFFFFFF)
        del state[0]
        if discarded >= 310:
            yield state[-1] >> 1


def _kaldis_halves(sums: np.ndarray, random: Iterator[int]) -> tuple[float, np.ndarray]:
    """What dividing n >= 2 rows in two gains, and the side of each row, bool (n,); rows without statistics stay where they started."""
    count, found = len(sums), np.flatnonzero(sums[:, 0] > 0)
    whole = float(log_likelihood(sums.sum(axis=0)))
    best, best_side = -np.inf, np.zeros(count, dtype=bool)
    for _ in range(_STARTS):
        skip = 1 + next(random) % (count - 1)
        while math.gcd(skip, count) != 1:
            skip = skip % (count - 1) + 1
        side = np.zeros(count, dtype=bool)
        side[np.arange(count) * skip % count] = np.arange(count) % 2 == 1
        moving = side[found]
        if moving.any() and not moving.all():
            _move(sums[found], moving, _KALDIS_SWEEPS)
            side[found] = moving
        gain = float(log_likelihood(np.stack([sums[side].sum(axis=0), sums[~side].sum(axis=0)])).sum()) - whole
        if gain * (1 - _SAME_GAIN) > best:
            best, best_side = gain, side
    return best, best_side


def all_questions(phone_questions: Sequence[frozenset[int]], width: int, num_pdf_classes: int) -> Questions:
    """The questions for every key of a tree: the phones at each place of the window, and "is the pdf-class at most c"."""
    by_class = [frozenset(range(c + 1)) for c in range(num_pdf_classes - 1)]
    return {PDF_CLASS: by_class, **{place: list(phone_questions) for place in range(width)}}


def _best_halves(sums: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The side of each of n >= 2 rows, bool (n,), in the best division in two; neither side is empty."""
    count = len(sums)
    best, best_side = -np.inf, np.arange(count) == 0
    for _ in range(_STARTS):
        side = rng.permutation(count) < count // 2
        _move(sums, side, _SWEEPS)
        value = float(log_likelihood(np.stack([sums[side].sum(axis=0), sums[~side].sum(axis=0)])).sum())
        if value > best:
            best, best_side = value, side
    return best_side


@kernel
def _likelihood(sums: np.ndarray) -> float:
    """The log-likelihood of gauss_stats.log_likelihood, without the constant."""
    dim = len(sums) // 2
    n = sums[0]
    total = 0.0
    for d in range(dim):
        mean = sums[1 + d] / n
        variance = sums[1 + dim + d] / n - mean * mean
        floored = max(variance, VARIANCE_FLOOR)
        total += np.log(floored) + variance / floored
    return -0.5 * n * total


@kernel
def _move(sums: np.ndarray, side: np.ndarray, sweeps: int) -> None:
    """Move rows to the other side, one after the other, while that raises the likelihood; in place."""
    halves = np.zeros((2, sums.shape[1]))
    members = np.zeros(2, np.int64)
    for i in range(len(side)):
        halves[int(side[i])] += sums[i]
        members[int(side[i])] += 1
    values = np.array([_likelihood(halves[0]), _likelihood(halves[1])])
    for _ in range(sweeps):
        moved = False
        for i in range(len(side)):
            here = int(side[i])
            if members[here] == 1:
                continue
            left, joined = halves[here] - sums[i], halves[1 - here] + sums[i]
            value_left, value_joined = _likelihood(left), _likelihood(joined)
            if value_left + value_joined > values[0] + values[1] + 1e-9 * abs(values[0] + values[1]):
                halves[here], halves[1 - here] = left, joined
                values[here], values[1 - here] = value_left, value_joined
                members[here] -= 1
                members[1 - here] += 1
                side[i] = not side[i]
                moved = True
        if not moved:
            return
