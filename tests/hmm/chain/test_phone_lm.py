from __future__ import annotations

import gzip
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.errors import UserError
from pykaldist.hmm.chain.phone_lm import PhoneLmOptions, estimate_phone_lm
from pykaldist.io.fst import Fst


def log_prob(fst: Fst, sentence: list[int]) -> float:
    """The log-probability of a sentence, along its one path."""
    state, total = fst.start, 0.0
    for phone in sentence:
        arcs = slice(fst.offset[state], fst.offset[state + 1])
        (found,) = np.flatnonzero(fst.ilabel[arcs] == phone)
        total -= float(fst.weight[arcs][found])
        state = int(fst.nextstate[arcs][found])
    return total - float(fst.final[state])


def test_it_is_kaldis_state_by_state(chain: Path) -> None:
    with gzip.open(chain / "phones.txt.gz", "rt") as lines:
        sentences = [[int(phone) for phone in line.split()[1:]] for line in lines]
    ours, kaldis = estimate_phone_lm(sentences, PhoneLmOptions(num_extra_lm_states=300)), Fst.read(chain / "phone_lm.fst")
    assert (ours.start, ours.num_states, ours.num_arcs) == (kaldis.start, 857, 2784)
    for name in ("offset", "ilabel", "olabel", "nextstate"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(kaldis, name))
    for name in ("weight", "final"):
        np.testing.assert_allclose(getattr(ours, name), getattr(kaldis, name), rtol=1e-6)


sentences = st.lists(st.lists(st.integers(1, 4), max_size=8), min_size=1, max_size=12).filter(any)


@settings(max_examples=30)
@given(sentences, st.integers(2, 4), st.integers(1, 2), st.integers(0, 20))
def test_probabilities_sum_to_one_and_every_sentence_has_a_path(data: list[list[int]], order: int, kept: int, extra: int) -> None:
    fst = estimate_phone_lm(data, PhoneLmOptions(order, kept, extra))
    sums = np.exp(-fst.final.astype(float))
    np.add.at(sums, fst.source, np.exp(-fst.weight.astype(float)))
    np.testing.assert_allclose(sums, 1.0, atol=1e-6)
    assert all(math.isfinite(log_prob(fst, sentence)) for sentence in data)


@settings(max_examples=30)
@given(sentences)
def test_without_pruning_it_is_the_maximum_likelihood_trigram(data: list[list[int]]) -> None:
    fst = estimate_phone_lm(data, PhoneLmOptions(3, 3, 0))
    trigram, history = Counter(), Counter()
    for sentence in data:
        padded = [0, *sentence, 0]
        for n in range(1, len(padded)):
            before = tuple(padded[max(0, n - 2) : n])
            trigram[before, padded[n]] += 1
            history[before] += 1
    for sentence in data:
        padded = [0, *sentence, 0]
        keys = [(tuple(padded[max(0, n - 2) : n]), padded[n]) for n in range(1, len(padded))]
        assert log_prob(fst, sentence) == pytest.approx(sum(math.log(trigram[key] / history[key[0]]) for key in keys), abs=1e-5)


def test_pruned_to_nothing_extra_it_has_the_states_of_the_order_that_is_kept() -> None:
    data = [[1, 2, 1, 2, 2], [2, 1, 1, 2], [1, 1, 1]]
    kept, pruned = estimate_phone_lm(data, PhoneLmOptions(2, 2, 0)), estimate_phone_lm(data, PhoneLmOptions(4, 2, 0))
    assert pruned.num_states == kept.num_states == 3


@settings(max_examples=30)
@given(sentences)
def test_with_unigrams_alone_kept_it_is_one_state_with_all_counts(data: list[list[int]]) -> None:
    """As of --ngram-order=2 --no-prune-ngram-order=1 --num-extra-lm-states=0."""
    fst = estimate_phone_lm(data, PhoneLmOptions(2, 1, 0))
    counts = Counter(phone for sentence in data for phone in [*sentence, 0])
    assert fst.num_states == 1 and fst.ilabel.tolist() == sorted(set(counts) - {0})
    expected = [-math.log(counts[phone] / counts.total()) for phone in [*fst.ilabel.tolist(), 0]]
    np.testing.assert_allclose([*fst.weight, *fst.final], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("data", "words"), [([[1, 0]], "phone 0"), ([[], []], "at least one phone")])
def test_what_is_no_phone_sequence_is_refused(data: list[list[int]], words: str) -> None:
    with pytest.raises(UserError, match=words):
        estimate_phone_lm(data, PhoneLmOptions())


def test_orders_that_do_not_fit_are_refused() -> None:
    for order, kept in ((3, 4), (1, 1), (2, 0)):
        with pytest.raises(UserError, match=f"--no-prune-ngram-order {kept} --ngram-order {order}"):
            PhoneLmOptions(order, kept)
