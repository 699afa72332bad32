"""Questions for a decision tree: sets of phones that sound alike, found from data (Kaldi's cluster-phones and compile-questions).

All phones together are divided in two so that the two Gaussians of the parts are likeliest, each part again, and so on down to single
phones (or sets of phones that are never parted, such as a phone's places in the word). Every set on the way is a question. Dividing in
two is a 2-means in which a phone moves to the other side wherever that raises the likelihood, from several random starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pykaldist.hmm.tree.gauss_stats import VARIANCE_FLOOR, log_likelihood
from pykaldist.hmm.tree.tree import PDF_CLASS
from pykaldist.hmm.tree.tree_stats import TreeStats
from pykaldist.kernels import kernel

_STARTS, _SWEEPS = 10, 20
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
