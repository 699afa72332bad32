"""Growing of a decision tree: from its roots by the splits that raise the likelihood most, then by merging leaves that hardly differ.

A root belongs to a set of phones, for all its pdf-classes together ("shared") or one root each. Of all leaves and all questions the
split with the highest gain in log-likelihood comes next, while that is above `thresh` and there are fewer than `max_leaves` leaves.
Then leaves below the same root are merged, the cheapest pair first, while that costs no more than `cluster_thresh` (below 0: the gain
of the last split, so that merging takes back what greedy splitting came to regret). A context key is asked only where all statistics of
the leaf have context. Sources: Young, Odell & Woodland, 1994; Kaldi's build-tree (tree/build-tree.cc).
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pykaldist.errors import LANG_AGAIN, UserError
from pykaldist.hmm.tree.gauss_stats import log_likelihood
from pykaldist.hmm.tree.questions import Questions
from pykaldist.hmm.tree.tree import PDF_CLASS, Constant, ContextDependency, EventMap, Split, root_map
from pykaldist.hmm.tree.tree_stats import TreeStats
from pykaldist.io.lang import LangDir
from pykaldist.progress import Progress

_ROUND_TO = 8  # pdfs, where Kaldi's rules are followed


@dataclass(frozen=True)
class Root:
    """A line of phones/roots.int: phones that share a root, or have one each, which may be split or not."""

    phones: tuple[int, ...]
    shared: bool = True
    split: bool = True


@dataclass(frozen=True)
class GrownTree:
    """A grown tree, and its log-likelihood on the statistics, in all and before the first split.

    `groups` has for each pdf the node of the first level below which it is: a root, where the tree was grown in one level.
    """

    tree: ContextDependency
    log_likelihood: float
    root_log_likelihood: float
    splits: int
    merged: int
    groups: np.ndarray


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
        self.value = builder.precision(log_likelihood(total))
        self.gain, self.key, self.yes_set = 0.0, PDF_CLASS, frozenset[int]()
        self.yes: _Leaf | None = None
        self.no: _Leaf | None = None
        self.number = self.pdf = -1
        builder.find_split(self)


class _Builder:
    def __init__(self, stats: TreeStats, questions: Questions, precision: type[np.floating]) -> None:
        self.stats, self.precision = stats, precision
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
            gains = log_likelihood(yes).astype(self.precision) + log_likelihood(leaf.total - yes).astype(self.precision) - leaf.value
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
               thresh: float = 300.0, cluster_thresh: float = -1.0, as_kaldi: bool = False, first_leaves: int = 0) -> GrownTree:
    """Grow a tree; `max_leaves` 0 sets no limit, `cluster_thresh` 0 merges nothing.

    With `first_leaves` it has two levels: what are leaves when there are so many are the groups of the pdfs, and leaves are merged only
    within one (Kaldi's build-tree-two-level).

    Pdfs are numbered in the order of the tree. `as_kaldi`: in the order in which leaves came into being; and log-likelihoods are of single
    precision, so that what is equal to Kaldi is equal here (of several questions with the same answers the first is asked, and with a
    negative `cluster_thresh` the last split is undone); in the end so many pdfs are merged that their number is a multiple of 8.

    Raises UserError where a phone of the statistics has no root, or all leaves but the roots are too many already.
    """
    known = {phone for root in roots for phone in root.phones}
    rootless = sorted(set(stats.values[:, stats.central].tolist()) - known)
    if rootless:
        raise UserError(f"phones/roots.int has no root for phone {rootless[0]}, which occurs in the alignments; {LANG_AGAIN}.")
    precision = np.float32 if as_kaldi else np.float64
    builder = _Builder(stats, questions, precision)
    grown: list[tuple[Root, int, _Leaf]] = []  # in the order in which root_map numbers them
    central, pdf_class = stats.values[:, stats.central], stats.values[:, PDF_CLASS]
    for root in roots:
        mine = np.isin(central, root.phones)
        for c in range(1) if root.shared else range(max(map(num_pdf_classes, root.phones))):
            events = np.flatnonzero(mine if root.shared else mine & (pdf_class == c))
            grown.append((root, c, _Leaf(builder, events, stats.sums[events].sum(axis=0))))
            grown[-1][-1].number = len(grown) - 1
    num_leaves, before = len(grown), sum(float(leaf.value) for _, _, leaf in grown)
    if max_leaves and num_leaves > max_leaves:
        raise UserError(f"there are {num_leaves} roots, more than the {max_leaves} leaves asked for; ask for more leaves.")

    queue = [(-leaf.gain, number, leaf) for number, (root, _, leaf) in enumerate(grown) if root.split]
    heapq.heapify(queue)
    numbers, splits, smallest = len(grown), 0, np.inf
    tops = [leaf for _, _, leaf in grown]  # below which leaves are merged
    with Progress("growing the tree", max_leaves - num_leaves if max_leaves else None, "split") as bar:
        while queue and -queue[0][0] > thresh and (not max_leaves or num_leaves < max_leaves):
            if num_leaves == first_leaves:
                tops = [leaf for _, _, root_leaf in grown for leaf in _ends(root_leaf)]
            gain, _, leaf = heapq.heappop(queue)
            smallest = min(smallest, -gain)
            for part in builder.split(leaf, num_leaves):
                heapq.heappush(queue, (-part.gain, numbers, part))
                numbers += 1
            num_leaves, splits = num_leaves + 1, splits + 1
            bar.update()

    if cluster_thresh < 0:
        cluster_thresh = smallest if splits else 0.0
    if first_leaves >= num_leaves:
        tops = [leaf for _, _, root_leaf in grown for leaf in _ends(root_leaf)]
    ends = [_ends(top) for top in tops]
    merging = [_Merging(np.stack([leaf.total for leaf in leaves]), precision) for leaves in ends]
    for groups in merging:
        while cluster_thresh > 0 and groups.cheapest <= cluster_thresh:
            groups.merge()
    if as_kaldi:
        in_turn = [_kaldis_numbers(np.array([leaf.number for leaf in leaves]), groups.group)
                   for leaves, groups in zip(ends, merging, strict=True)]
        _round_pdfs(merging)
        in_turn = [_kaldis_numbers(old, groups.group) for old, groups in zip(in_turn, merging, strict=True)]
    else:
        before_root = np.cumsum([0, *map(len, ends)])
        in_turn = [first + groups.group for first, groups in zip(before_root, merging, strict=False)]
    pdfs: np.ndarray = np.unique(np.concatenate(in_turn), return_inverse=True)[1]
    for leaf, pdf in zip(itertools.chain(*ends), pdfs.tolist(), strict=True):
        leaf.pdf = pdf
    groups_of_pdfs = np.zeros(int(pdfs.max()) + 1, np.int64)
    groups_of_pdfs[pdfs] = np.repeat(np.arange(len(ends)), [len(leaves) for leaves in ends])
    answers = (_event_map(root_leaf) for _, _, root_leaf in grown)
    to_pdf = root_map([root.phones for root in roots], stats.central, [root.shared for root in roots], num_pdf_classes, answers)
    value = float(sum(log_likelihood(groups.sums[np.unique(groups.group)]).sum() for groups in merging))
    return GrownTree(ContextDependency(stats.width, stats.central, to_pdf), value, before, splits, len(pdfs) - 1 - int(pdfs.max()),
                     groups_of_pdfs)


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


def _kaldis_numbers(numbers: np.ndarray, group: np.ndarray) -> np.ndarray:
    """The numbers of a root's leaves after they were merged to groups, as Kaldi gives them: all of a group have the same.

    The numbers of before are given out again from the lowest on, to the groups in the order of their highest.
    """
    labels, member = np.unique(group, return_inverse=True)
    highest = [numbers[group == label].max() for label in labels]
    found: np.ndarray = np.unique(numbers)[np.argsort(np.argsort(highest))][member]
    return found


def _round_pdfs(merging: Sequence[_Merging]) -> None:
    """Merge the cheapest pairs of any root until the number of pdfs is a multiple of 8, where there are so many."""
    count = sum(groups.count for groups in merging)
    for _ in range(count % _ROUND_TO if count - count % _ROUND_TO >= len(merging) else 0):
        min(merging, key=lambda groups: groups.cheapest).merge()


def _event_map(leaf: _Leaf) -> EventMap:
    if leaf.yes is None or leaf.no is None:
        return Constant(leaf.pdf)
    return Split(leaf.key, leaf.yes_set, _event_map(leaf.yes), _event_map(leaf.no))


class _Merging:
    """The leaves of a root, and the groups that they are merged to: `group` of each is the lowest leaf of its group."""

    def __init__(self, sums: np.ndarray, precision: type[np.floating]) -> None:
        self.group, self.sums, self._precision = np.arange(len(sums)), sums.copy(), precision
        self._value = log_likelihood(sums).astype(precision)
        self._alive = sums[:, 0] > 0
        self._cost = np.full((len(sums), len(sums)), np.inf)
        for row in np.flatnonzero(self._alive).tolist():
            self._price(row)

    def _price(self, row: int) -> None:
        """Set what merging `row` with any other row costs."""
        others = np.flatnonzero(self._alive)
        others = others[others != row]
        together = log_likelihood(self.sums[row] + self.sums[others]).astype(self._precision)
        self._cost[row, others] = self._cost[others, row] = self._value[row] + self._value[others] - together

    @property
    def cheapest(self) -> float:
        """What merging the cheapest pair of groups costs; infinite where there is none."""
        return float(self._cost.min(initial=np.inf))

    @property
    def count(self) -> int:
        """The number of groups."""
        return len(np.unique(self.group))

    def merge(self) -> None:
        """Merge the cheapest pair."""
        keep, gone = sorted(map(int, np.unravel_index(self._cost.argmin(), self._cost.shape)))
        self.sums[keep] += self.sums[gone]
        self._value[keep] = log_likelihood(self.sums[keep])
        self._alive[gone] = False
        self._cost[gone, :] = self._cost[:, gone] = np.inf
        self.group[self.group == gone] = keep
        self._price(keep)
