"""Decision trees: likelihoods against scipy, splits and merges against brute force, and what may not be asked or shared."""

from __future__ import annotations

import io
import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from pykaldist.errors import UserError
from pykaldist.hmm.tree.build_tree import GrownTree, Root, build_tree, read_roots
from pykaldist.hmm.tree.gauss_stats import log_likelihood, pack_sums
from pykaldist.hmm.tree.questions import all_questions, automatic_questions
from pykaldist.hmm.tree.tree import ContextDependency, leaves
from pykaldist.hmm.tree.tree_stats import TreeStats
from pykaldist.io.kaldi import KaldiReader, KaldiWriter
from pykaldist.io.lang import LangDir

SINGLE = [frozenset({phone}) for phone in range(1, 7)]


def make_stats(values: np.ndarray, means: np.ndarray, in_context: np.ndarray | None = None, count: float = 100.0) -> TreeStats:
    """Events of `count` frames of variance 1 around `means` (E, D)."""
    counts = np.full(len(values), count)
    sums = pack_sums(counts, counts[:, None] * means, counts[:, None] * (means**2 + 1))
    return TreeStats(values.astype(np.int32), np.ones(len(values), bool) if in_context is None else in_context, sums, 1)


def random_stats(seed: int, events: int = 40, phones: int = 6, dim: int = 2) -> TreeStats:
    rng = np.random.default_rng(seed)
    values = np.unique(np.stack([rng.integers(0, phones + 1, events), rng.integers(1, phones + 1, events),
                                 rng.integers(0, phones + 1, events), rng.integers(0, 3, events)], axis=1), axis=0)
    return make_stats(values, rng.normal(size=(len(values), dim)) * 2)


def value(stats: TreeStats, tree: ContextDependency) -> float:
    """The log-likelihood of the statistics with one Gaussian for each pdf."""
    pdfs = np.array([tree.compute(v[:-1], v[-1]) for v in stats.values.tolist()])
    return sum(float(log_likelihood(stats.sums[pdfs == pdf].sum(axis=0))) for pdf in np.unique(pdfs))


def three(phone: int) -> int:
    return 3


def grow(stats: TreeStats, roots: list[Root], **options: float) -> GrownTree:
    return build_tree(stats, roots, all_questions(SINGLE, 3, 3), three, **options)


def test_log_likelihood_is_that_of_the_best_gaussian() -> None:
    x = np.random.default_rng(0).normal(3, 2, (50, 4))
    expected = norm.logpdf(x, x.mean(axis=0), x.std(axis=0)).sum()
    rows = pack_sums(np.array([50, 0]), np.stack([x.sum(0), np.zeros(4)]), np.stack([(x * x).sum(0), np.zeros(4)]))
    np.testing.assert_allclose(log_likelihood(rows), [expected, 0.0])
    still = pack_sums(np.array([7.0]), np.zeros((1, 4)), np.zeros((1, 4)))  # below the floor of variances
    np.testing.assert_allclose(log_likelihood(still), norm.logpdf(np.zeros((7, 4)), 0, 0.1).sum())


@pytest.mark.parametrize("seed", range(5))
def test_the_first_split_is_the_best_of_all(seed: int) -> None:
    stats = random_stats(seed)
    grown = grow(stats, [Root((1, 2, 3, 4, 5, 6))], max_leaves=2, cluster_thresh=0)
    best = 0.0
    for key, questions in all_questions(SINGLE, 3, 3).items():
        for question in questions:
            yes = np.isin(stats.values[:, key], list(question))
            parts = [stats.sums[side].sum(axis=0) for side in (yes, ~yes)]
            best = max(best, float(log_likelihood(np.stack(parts)).sum()) - grown.root_log_likelihood)
    assert grown.splits == 1 and grown.log_likelihood - grown.root_log_likelihood == pytest.approx(best)


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(2, 25), st.sampled_from([-1.0, 0.0, 200.0]), st.booleans())
def test_a_grown_tree(seed: int, max_leaves: int, cluster_thresh: float, shared: bool) -> None:
    """Its log-likelihood is that of its pdfs, pdfs are 0 .. P - 1, no two roots share one, and Kaldi's file gives it back."""
    stats = random_stats(seed)
    roots = [Root((1, 2), shared), Root((3,), shared), Root((4, 5, 6), shared, split=False)]
    least = len(roots) if shared else 3 * len(roots)
    grown = grow(stats, roots, max_leaves=max(least, max_leaves), thresh=20.0, cluster_thresh=cluster_thresh)
    tree = grown.tree
    assert value(stats, tree) == pytest.approx(grown.log_likelihood) and grown.log_likelihood >= grown.root_log_likelihood - 1e-6
    assert sorted({leaf.answer for leaf in leaves(tree.to_pdf)}) == list(range(tree.num_pdfs))
    assert tree.num_pdfs == least + grown.splits - grown.merged <= max(least, max_leaves)
    assert cluster_thresh or grown.merged == 0
    of_root = [{pdf for phone in root.phones for c in range(3) for pdf in tree.possible_pdfs(phone, c)} for root in roots]
    assert not any(a & b for a, b in itertools.combinations(of_root, 2)) and len(of_root[2]) == (1 if shared else 3)
    stream = io.BytesIO()
    tree.write(KaldiWriter(stream))
    assert ContextDependency.read(KaldiReader(stream.getvalue(), "tree")) == tree


def test_merging_takes_back_splits_that_part_what_is_alike() -> None:
    """Left neighbours 1 and 3 sound alike, 2 does not: greedy one-phone questions part them, merging joins 1 and 3 again."""
    values = np.array([[left, 4, 0, 0] for left in (1, 2, 3)])
    stats = make_stats(values, np.array([[0.0], [9.0], [0.05]]))
    parted, joined = (grow(stats, [Root((4,))], max_leaves=3, thresh=0.01, cluster_thresh=c) for c in (0.0, 10.0))
    assert parted.tree.num_pdfs == 3 and (joined.tree.num_pdfs, joined.merged) == (2, 1)
    assert joined.tree.compute((1, 4, 0), 0) == joined.tree.compute((3, 4, 0), 0) != joined.tree.compute((2, 4, 0), 0)


def test_phones_without_context_are_not_asked_for_it() -> None:
    """Phone 1's statistics depend on the left neighbour most of all, but it is modelled without context."""
    values = np.array([[left, 1, 0, c] for left in (2, 3) for c in (0, 1)])
    means = np.array([[0.0], [1.0], [50.0], [51.0]])
    free, bound = (grow(make_stats(values, means, np.full(4, free)), [Root((1,))], thresh=0.01, cluster_thresh=0) for free in (True, False))
    assert free.tree.compute((2, 1, 0), 0) != free.tree.compute((3, 1, 0), 0)
    assert bound.tree.num_pdfs == 2 and bound.tree.compute((2, 1, 0), 0) == bound.tree.compute((3, 1, 0), 0)


def test_questions_are_the_clusters_of_the_phones() -> None:
    """Two distant groups of three, of which two members are closer: the sets on the way down, and no others."""
    means = {1: 0.0, 2: 1.0, 3: 5.0, 4: 100.0, 5: 101.0, 6: 105.0}
    values = np.array([[0, phone, 0, c] for phone in means for c in range(3)])
    stats = make_stats(values, np.array([[m if c == 1 else 0.0] for m in means.values() for c in range(3)]))
    found = automatic_questions(stats, [[p] for p in means] + [[7, 8]], [1], np.random.default_rng(0))
    assert set(found) == {frozenset(q) for q in ({1, 2, 3, 4, 5, 6, 7, 8}, {1, 2, 3, 4, 5, 6}, {1, 2, 3}, {4, 5, 6}, {1, 2}, {4, 5},
                                                 {1}, {2}, {3}, {4}, {5}, {6})}
    # the places of a phone in the word are never parted
    together = automatic_questions(stats, [[1, 4], [2, 3], [5], [6]], [1], np.random.default_rng(0))
    assert all(len(q & {1, 4}) != 1 and len(q & {2, 3}) != 1 for q in together)


@pytest.mark.parametrize("seed", range(3))
def test_halves_are_the_best(seed: int) -> None:
    """Against all ways of dividing seven phones in two."""
    stats = random_stats(seed, events=60, phones=7)
    sets = [[phone] for phone in range(1, 8)]
    found = automatic_questions(stats, sets, [0, 1, 2], np.random.default_rng(1))
    sums = np.stack([stats.sums[stats.values[:, 1] == phone].sum(axis=0) for phone in range(1, 8)])
    best = max((float(log_likelihood(np.stack([sums[list(half)].sum(0), sums.sum(0) - sums[list(half)].sum(0)])).sum()), half)
               for size in (1, 2, 3) for half in itertools.combinations(range(7), size))
    assert frozenset(i + 1 for i in best[1]) in found


def test_golden_roots_and_what_is_wrong(golden: Path, tmp_path: Path) -> None:
    roots = read_roots(LangDir(golden / "an4_kaldi/lang"))
    assert len(roots) == 35 and roots[0] == Root((1, 2, 3, 4, 5)) and roots[2].phones[0] == 11
    (tmp_path / "phones").mkdir()
    for text, message in (("shared split 1\nshared split 2 1\n", "line 2: phone 1 has a root already"),
                          ("shared 1 2\n", "line 1: expected shared or not-shared"), ("shared split\n", "line 1: expected shared")):
        (tmp_path / "phones/roots.int").write_text(text)
        with pytest.raises(UserError, match=message):
            read_roots(LangDir(tmp_path))
    with pytest.raises(UserError, match="no root for phone 3"):
        grow(random_stats(0), [Root((1, 2, 4, 5, 6))])
    with pytest.raises(UserError, match="2 roots, more than the 1 leaves asked for"):
        grow(random_stats(0), [Root((1, 2, 3)), Root((4, 5, 6))], max_leaves=1)


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.integers(3, 12), st.sampled_from([-1.0, 0.0, 200.0]))
def test_a_tree_in_two_levels(seed: int, first_leaves: int, cluster_thresh: float) -> None:
    """Its groups are the leaves of the tree that ends at the first level, numbered one after another, and no leaves of two are merged."""
    stats = random_stats(seed)
    roots = [Root((1, 2)), Root((3,)), Root((4, 5, 6))]
    grown = grow(stats, roots, max_leaves=25, thresh=0.0, cluster_thresh=cluster_thresh, first_leaves=first_leaves)
    first = grow(stats, roots, max_leaves=first_leaves, thresh=0.0, cluster_thresh=0.0)
    assert len(grown.groups) == grown.tree.num_pdfs and (np.diff(grown.groups) >= 0).all()
    assert sorted(set(grown.groups.tolist())) == list(range(first.tree.num_pdfs))
    pairs = {(first.tree.compute(v[:-1], v[-1]), int(grown.groups[grown.tree.compute(v[:-1], v[-1])])) for v in stats.values.tolist()}
    assert len(pairs) == len({one for one, _ in pairs}) == len({two for _, two in pairs})
    assert grown.log_likelihood >= first.log_likelihood - 1e-6
