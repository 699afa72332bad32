"""The nearest path and word confidences, against enumeration of all paths."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.decode.confidence import confidences
from pykaldist.decode.lattice import Lattice
from pykaldist.decode.oracle import oracle_words
from pykaldist.score.wer import edit_counts

Path = tuple[tuple[int, ...], float]  # words, cost


def random_lattice(seed: int, tree: bool = False) -> Lattice:
    """Up to eight states, the last final and others perhaps; in a tree, one way into each state."""
    rng = np.random.default_rng(seed)
    states = int(rng.integers(2, 9))
    arcs = [(int(rng.integers(0, t)), t) for t in range(1, states)]
    if not tree:
        arcs += [tuple(sorted(pair)) for pair in (rng.choice(states, 2, replace=False).tolist() for _ in range(rng.integers(0, 5)))]
    source, target = (np.array(column) for column in zip(*sorted(arcs), strict=True))
    offset = np.searchsorted(source, np.arange(states + 1)).astype(np.int64)
    final = np.where(rng.random(states) < 0.4, rng.random(states), np.inf).astype(np.float32)
    final[-1] = 0.5
    return Lattice.from_arcs(offset, np.ones(len(source), np.int32), rng.integers(0, 4, len(source)).astype(np.int32),
                             (rng.random(len(source)) * 3).astype(np.float32), rng.normal(size=len(source)).astype(np.float32),
                             target.astype(np.int32), final)


def paths(lattice: Lattice) -> list[Path]:
    found: list[Path] = []

    def walk(s: int, words: tuple[int, ...], cost: float) -> None:
        if lattice.final[s] < np.inf:
            found.append((words, cost + float(lattice.final[s])))
        for a in range(lattice.offset[s], lattice.offset[s + 1]):
            w = int(lattice.word[a])
            walk(int(lattice.target[a]), words + (w,) * (w > 0), cost + float(lattice.graph[a]) + 0.5 * float(lattice.acoustic[a]))

    walk(0, (), 0.0)
    return found


def errors(ref: object, hyp: object) -> int:
    return sum(edit_counts([str(w) for w in ref], [str(w) for w in hyp]))  # type: ignore[attr-defined]


references = st.lists(st.integers(1, 4), max_size=6)
seeds = st.integers(0, 2**32 - 1)


@settings(max_examples=300)
@given(seed=seeds, ref=references)
def test_the_oracle_is_the_nearest_path(seed: int, ref: list[int]) -> None:
    lattice = random_lattice(seed)
    sequences = {words for words, _ in paths(lattice)}
    found = tuple(oracle_words(lattice, ref))
    assert found in sequences
    assert errors(ref, found) == min(errors(ref, words) for words in sequences)


def probabilities(every: list[Path]) -> np.ndarray:
    weight = np.exp(-np.array([cost for _, cost in every]))
    return weight / weight.sum()


@settings(max_examples=200)
@given(seed=seeds, ref=references)
def test_where_no_paths_meet_the_expected_distance_is_that_of_enumeration(seed: int, ref: list[int]) -> None:
    lattice = random_lattice(seed, tree=True)
    every = paths(lattice)
    expected = sum(p * errors(ref, words) for p, (words, _) in zip(probabilities(every), every, strict=True))
    gamma, distance = confidences(lattice, ref, 0.5)
    assert distance == pytest.approx(expected, abs=1e-3)
    assert len(gamma) == len(ref) and (gamma >= 0).all() and (gamma <= 1 + 1e-9).all()
    # every error is a word of the reference that is missing, or an insertion
    assert len(ref) - gamma.sum() <= expected + 1e-3


@settings(max_examples=200)
@given(seed=seeds, ref=references)
def test_where_paths_meet_the_expected_distance_is_a_bound(seed: int, ref: list[int]) -> None:
    lattice = random_lattice(seed)
    every = paths(lattice)
    expected = sum(p * errors(ref, words) for p, (words, _) in zip(probabilities(every), every, strict=True))
    assert confidences(lattice, ref, 0.5)[1] >= expected - 1e-3


def test_confidence_of_a_word_is_the_share_of_paths_that_have_it() -> None:
    # 7 8 9 against 7 5 9 and 7 9, their costs 0, 1 and 2
    offset, target = np.array([0, 1, 4, 5, 5]), np.array([1, 2, 2, 2, 3], np.int32)
    lattice = Lattice.from_arcs(offset, np.ones(5, np.int32), np.array([7, 8, 5, 0, 9], np.int32),
                                np.array([0, 0, 1, 2, 0], np.float32), np.zeros(5, np.float32), target,
                                np.array([np.inf, np.inf, np.inf, 0], np.float32))
    gamma, distance = confidences(lattice, [7, 8, 9], 1.0)
    share = 1 / (1 + np.exp(-1) + np.exp(-2))
    np.testing.assert_allclose(gamma, [1, share, 1], atol=1e-6)
    assert distance == pytest.approx(1 - share, abs=1e-3)


def test_without_a_path_there_is_an_error() -> None:
    lattice = random_lattice(3)
    lattice.final[:] = np.inf
    for work in (lambda: oracle_words(lattice, [1]), lambda: confidences(lattice, [1], 1.0)):
        with pytest.raises(ValueError, match="no path"):
            work()
