"""Growing of a decision tree: from its roots by the splits that raise the likelihood most, then by merging leaves that hardly differ.

A root belongs to a set of phones, for all its pdf-classes together ("shared") or one root each. Of all leaves and all questions the
split with the highest gain in log-likelihood comes next, while that is above `thresh` and there are fewer than `max_leaves` leaves.
Then leaves below the same root are merged, the cheapest pair first, while that costs no more than `cluster_thresh` (below 0: the gain
of the last split, so that merging takes back what greedy splitting came to regret). A context key is asked only where all statistics of
the leaf have context. Sources: Young, Odell & Woodland, 1994; Kaldi's build-tree (tree/build-tree.cc).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pykaldist.errors import UserError
from pykaldist.hmm.tree.gauss_stats import log_likelihood
from pykaldist.hmm.tree.questions import Questions
from pykaldist.hmm.tree.tree import PDF_CLASS, Constant, ContextDependency, EventMap, Split, root_map
from pykaldist.hmm.tree.tree_stats import TreeStats
from pykaldist.io.lang import LangDir
from pykaldist.progress import Progress


@dataclass(frozen=True)
class Root:
    """A line of phones/roots.int: phones that share a root, or have one each, which may be split or not."""

    phones: tuple[int, ...]
    shared: bool = True
    split: bool = True


@dataclass(frozen=True)
class GrownTree:
    """A grown tree, and its log-likelihood on the statistics, in all and before the first split."""

    tree: ContextDependency
    log_likelihood: float
    root_log_likelihood: float
    splits: int
    merged: int


def read_roots(lang: LangDir) -> list[Root]:
    """Read `phones/roots.int`; raises UserError for a line of another form, or a phone in two of them."""
    path = lang.file("phones/roots.int")
    roots: list[Root] = []
    seen: set[int] = set()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        shared, split, *phones = line.split() if len(line.split()) > 2 else ("", "")
        if shared not in ("shared", "not-shared") or split not in ("split", "not-split") or not all(p.isdecimal() for p in phones):
            raise UserError(f"{path}, line {number}: expected shared or not-shared, split or not-split, and phones; found {line!r}.")
        roots.append(Root(tuple(map(int, phones)), shared == "shared", split == "split"))
        if seen & set(roots[-1].phones):
            raise UserError(f"{path}, line {number}: phone {min(seen & set(roots[-1].phones))} has a root already.")
        seen |= set(roots[-1].phones)
    return roots


class _Leaf:
    """A leaf of a tree that is being grown: its events, and the best split of them."""

    def __init__(self, builder: _Builder, events: np.ndarray, total: np.ndarray) -> None:
        self.events, self.total = events, total
        self.value = float(log_likelihood(total))
        self.gain, self.key, self.yes_set = 0.0, PDF_CLASS, frozenset[int]()
        self.yes: _Leaf | None = None
        self.no: _Leaf | None = None
        self.number = self.pdf = -1
        builder.find_split(self)


class _Builder:
    def __init__(self, stats: TreeStats, questions: Questions) -> None:
        self.stats = stats
        self.questions = []  # (key, sets, their members as (sets, values) float64) by rising key, as Kaldi tries them
        for key in sorted(questions):
            members = np.zeros((len(questions[key]), 1 + max((max(q) for q in questions[key]), default=0)))
            for row, question in enumerate(questions[key]):
                members[row, list(question)] = 1.0
            self.questions.append((key, questions[key], members))

    def find_split(self, leaf: _Leaf) -> None:
        events = leaf.events
        if len(events) < 2:
            return
        sums, values = self.stats.sums[events], self.stats.values[events]
        in_context = bool(self.stats.in_context[events].all())
        for key, questions, members in self.questions:
            if not questions or not (in_context or key in (PDF_CLASS, self.stats.central)):
                continue
            different, index = np.unique(values[:, key], return_inverse=True)
            if len(different) < 2:
                continue
            order = np.argsort(index, kind="stable")
            by_value = np.add.reduceat(sums[order], np.searchsorted(index[order], np.arange(len(different))))
            known = different < members.shape[1]
            answers = np.zeros((len(questions), len(different)))
            answers[:, known] = members[:, different[known]]
            answers, first = np.unique(answers, axis=0, return_index=True)  # questions that differ here
            yes = answers @ by_value
            gains = log_likelihood(yes) + log_likelihood(leaf.total - yes) - leaf.value
            gains[(answers.sum(axis=1) == 0) | (answers.sum(axis=1) == len(different))] = 0.0
            best = int(np.lexsort((first, -gains))[0])
            if gains[best] > leaf.gain:
                leaf.gain, leaf.key, leaf.yes_set = float(gains[best]), key, questions[first[best]]

    def split(self, leaf: _Leaf, number: int) -> tuple[_Leaf, _Leaf]:
        """Split a leaf, whose number the events with the answer yes keep; `number` is that of the others."""
        answers = np.isin(self.stats.values[leaf.events, leaf.key], list(leaf.yes_set))
        yes, no = leaf.events[answers], leaf.events[~answers]
        leaf.yes, leaf.no = (_Leaf(self, events, self.stats.sums[events].sum(axis=0)) for events in (yes, no))
        leaf.yes.number, leaf.no.number = leaf.number, number
        return leaf.yes, leaf.no


def build_tree(stats: TreeStats, roots: Sequence[Root], questions: Questions, num_pdf_classes: Callable[[int], int], max_leaves: int = 0,
               thresh: float = 300.0, cluster_thresh: float = -1.0, by_age: bool = False) -> GrownTree:
    """Grow a tree; `max_leaves` 0 sets no limit, `cluster_thresh` 0 merges nothing.

    Pdfs are numbered in the order of the tree or, `by_age`, in that in which leaves came into being, as Kaldi numbers them.

    Raises UserError where a phone of the statistics has no root, or all leaves but the roots are too many already.
    """
    known = {phone for root in roots for phone in root.phones}
    rootless = sorted(set(stats.values[:, stats.central].tolist()) - known)
    if rootless:
        raise UserError(f"phones/roots.int has no root for phone {rootless[0]}, which occurs in the alignments; make the language "
                        "directory again.")
    builder = _Builder(stats, questions)
    grown: list[tuple[Root, int, _Leaf]] = []  # in the order in which root_map numbers them
    central, pdf_class = stats.values[:, stats.central], stats.values[:, PDF_CLASS]
    for root in roots:
        mine = np.isin(central, root.phones)
        for c in range(1) if root.shared else range(max(map(num_pdf_classes, root.phones))):
            events = np.flatnonzero(mine if root.shared else mine & (pdf_class == c))
            grown.append((root, c, _Leaf(builder, events, stats.sums[events].sum(axis=0))))
            grown[-1][-1].number = len(grown) - 1
    num_leaves, before = len(grown), sum(leaf.value for _, _, leaf in grown)
    if max_leaves and num_leaves > max_leaves:
        raise UserError(f"there are {num_leaves} roots, more than the {max_leaves} leaves asked for; ask for more leaves.")

    queue = [(-leaf.gain, number, leaf) for number, (root, _, leaf) in enumerate(grown) if root.split]
    heapq.heapify(queue)
    numbers, splits, smallest = len(grown), 0, np.inf
    with Progress("growing the tree", max_leaves - num_leaves if max_leaves else None, "split") as bar:
        while queue and -queue[0][0] > thresh and (not max_leaves or num_leaves < max_leaves):
            gain, _, leaf = heapq.heappop(queue)
            smallest = min(smallest, -gain)
            for part in builder.split(leaf, num_leaves):
                heapq.heappush(queue, (-part.gain, numbers, part))
                numbers += 1
            num_leaves, splits = num_leaves + 1, splits + 1
            bar.update()

    if cluster_thresh < 0:
        cluster_thresh = smallest if splits else 0.0
    pdfs, merged, value = 0, 0, 0.0
    ages: list[int] = []
    for _, _, root_leaf in grown:
        ends = _ends(root_leaf)
        groups = _merge(np.stack([leaf.total for leaf in ends]), cluster_thresh)
        _, first, group = np.unique(groups, return_index=True, return_inverse=True)
        rank = np.argsort(np.argsort(first))  # pdfs are numbered in the order of the tree
        for leaf, number in zip(ends, rank[group].tolist(), strict=True):
            leaf.pdf = pdfs + number
        ages += _ages(np.array([leaf.number for leaf in ends]), rank[group])
        pdfs, merged = pdfs + len(first), merged + len(ends) - len(first)
        value += float(log_likelihood(np.stack([sum(leaf.total for leaf, g in zip(ends, group, strict=True) if g == n)
                                                for n in range(len(first))])).sum())
    new_number = np.argsort(np.argsort(ages)).tolist() if by_age else list(range(pdfs))
    answers = (_event_map(root_leaf, new_number) for _, _, root_leaf in grown)
    to_pdf = root_map([root.phones for root in roots], stats.central, [root.shared for root in roots], num_pdf_classes, answers)
    return GrownTree(ContextDependency(stats.width, stats.central, to_pdf), value, before, splits, merged)


def _ends(root: _Leaf) -> list[_Leaf]:
    """The leaves below a leaf that was split, from yes to no."""
    found, stack = [], [root]
    while stack:
        leaf = stack.pop()
        if leaf.yes is None or leaf.no is None:
            found.append(leaf)
        else:
            stack += [leaf.no, leaf.yes]
    return found


def _ages(numbers: np.ndarray, pdfs: np.ndarray) -> list[int]:
    """Of the pdfs of a root, a number each that grows as Kaldi's do: the n-th of its leaves for the pdf whose youngest leaf is n-th.

    `numbers` of the root's leaves, `pdfs` (from 0) that they belong to.
    """
    youngest = np.zeros(pdfs.max() + 1, dtype=np.int64)
    np.maximum.at(youngest, pdfs, numbers)
    return [int(number) for number in np.sort(numbers)[np.argsort(np.argsort(youngest))]]


def _event_map(leaf: _Leaf, new_number: Sequence[int]) -> EventMap:
    if leaf.yes is None or leaf.no is None:
        return Constant(new_number[leaf.pdf])
    return Split(leaf.key, leaf.yes_set, _event_map(leaf.yes, new_number), _event_map(leaf.no, new_number))


def _merge(sums: np.ndarray, thresh: float) -> np.ndarray:
    """The group (a row's number) of each row after pairs were merged, the cheapest first, while that costs no more than `thresh`."""
    group, sums = np.arange(len(sums)), sums.copy()
    value = log_likelihood(sums)
    alive = sums[:, 0] > 0
    cost = np.full((len(sums), len(sums)), np.inf)

    def price(row: int) -> None:
        """What merging `row` with any other row costs."""
        others = np.flatnonzero(alive)
        others = others[others != row]
        cost[row, others] = cost[others, row] = value[row] + value[others] - log_likelihood(sums[row] + sums[others])

    if thresh > 0:
        for row in np.flatnonzero(alive).tolist():
            price(row)
        while cost.min(initial=np.inf) <= thresh:
            keep, gone = sorted(map(int, np.unravel_index(cost.argmin(), cost.shape)))
            sums[keep] += sums[gone]
            value[keep] = log_likelihood(sums[keep])
            alive[gone] = False
            cost[gone, :] = cost[:, gone] = np.inf
            group[group == gone] = keep
            price(keep)
    return group
