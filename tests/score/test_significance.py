"""The matched-pairs test, against a test by exchanged signs and against SciPy's paired test."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pykaldist.errors import UserError
from pykaldist.score.bootstrap import UtteranceCounts
from pykaldist.score.significance import matched_pairs


def counts(errors: list[int] | np.ndarray, words: int = 10) -> UtteranceCounts:
    return UtteranceCounts([f"u{i}" for i in range(len(errors))], np.full(len(errors), words), np.asarray(errors))


def test_p_is_that_of_exchanged_signs() -> None:
    generator = np.random.default_rng(1)
    first = generator.binomial(10, 0.2, 200)
    second = np.clip(first + generator.integers(-2, 2, 200), 0, 10)
    difference = second - first
    signs = generator.choice([-1, 1], (20_000, 200))
    extreme = np.abs(signs @ difference) >= abs(difference.sum())
    found = matched_pairs(counts(first), counts(second))
    assert found.difference == pytest.approx(difference.sum() / 20) and 0.0 < found.p < 0.2
    assert found.p == pytest.approx(extreme.mean(), abs=0.01)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10)), min_size=2, max_size=40))
def test_z_is_that_of_a_paired_test(pairs: list[tuple[int, int]]) -> None:
    first, second = np.array(pairs).T
    found, back = matched_pairs(counts(first), counts(second)), matched_pairs(counts(second), counts(first))
    assert back.p == found.p and back.z == -found.z and 0 <= found.p <= 1
    if np.ptp(second - first):
        assert found.z == pytest.approx(stats.ttest_rel(second, first).statistic)
        assert found.p == pytest.approx(2 * stats.norm.sf(abs(found.z)))


def test_systems_without_a_difference_and_with_one_everywhere() -> None:
    assert matched_pairs(counts([1, 2]), counts([1, 2])).p == 1
    assert matched_pairs(counts([1, 2]), counts([2, 3])).p == 0


def test_the_order_of_utterances_does_not_count_and_their_names_do() -> None:
    first, second = counts([0, 3, 1]), counts([2, 2, 2])
    turned = UtteranceCounts(second.utts[::-1], second.words, second.errors[::-1])
    assert matched_pairs(first, second) == matched_pairs(first, turned)
    with pytest.raises(UserError, match="different utterances"):
        matched_pairs(first, UtteranceCounts(["a", "b", "c"], second.words, second.errors))
