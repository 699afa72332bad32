"""The phone language model of the unknown word: its costs from the definition, path by path, and which words it takes."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pykaldist.errors import UserError
from pykaldist.io.dictdir import DictDir, Pronunciation
from pykaldist.io.fst import Fst
from pykaldist.lm.prune import prune_to
from pykaldist.lm.smoothing import estimate
from pykaldist.lm.unknown_word import UnknownWordOptions, pairs_of, spoken_pronunciations, unknown_word_model

PHONES = "ABCD"
SYMBOLS = {name: n for n, name in enumerate(["<eps>", *(p + mark for p in PHONES for mark in ("", "_B", "_I", "_E", "_S")), "#1"])}
LEXICONS = st.lists(st.lists(st.sampled_from(PHONES), min_size=1, max_size=5).map(tuple), min_size=1, max_size=15).filter(
    lambda prons: max(map(len, prons)) > 1)


def cost_of(fst: Fst, labels: list[int]) -> float:
    """The least cost of a sequence of phones by all of the transducer's paths, on which #1 takes nothing."""
    states = {fst.start: 0.0}
    for label in [*labels, -1]:
        todo = list(states)
        for state in todo:  # which grows by what backing off reaches
            for a in range(fst.offset[state], fst.offset[state + 1]):
                to, cost = int(fst.nextstate[a]), states[state] + float(fst.weight[a])
                if fst.ilabel[a] == SYMBOLS["#1"] and cost < states.get(to, math.inf):
                    states[to] = cost
                    todo.append(to)
        if label < 0:
            return min((cost + float(fst.final[state]) for state, cost in states.items()), default=math.inf)
        reached: dict[int, float] = {}
        for state, cost in states.items():
            for a in range(fst.offset[state], fst.offset[state + 1]):
                if fst.ilabel[a] == label:
                    to = int(fst.nextstate[a])
                    reached[to] = min(reached.get(to, math.inf), cost + float(fst.weight[a]))
        states = reached
    raise AssertionError


def cost_of_n_grams(fst: Fst, labels: list[int]) -> float:
    """The cost of a sequence of phones by the one path on which #1 is taken only where a state has no arc of the phone, or no end."""
    state, total = fst.start, 0.0
    for label in [*labels, -1]:
        while True:
            arcs = {int(fst.ilabel[a]): a for a in range(fst.offset[state], fst.offset[state + 1])}
            if label < 0 and fst.final[state] < math.inf:
                return total + float(fst.final[state])
            if (arc := arcs.get(label)) is not None:
                break
            if (back := arcs.get(SYMBOLS["#1"])) is None:
                return math.inf
            state, total = int(fst.nextstate[back]), total + float(fst.weight[back])
        state, total = int(fst.nextstate[arc]), total + float(fst.weight[arc])
    raise AssertionError


def marked(phones: tuple[str, ...], positions: bool) -> list[int]:
    marks = ["_S"] if len(phones) == 1 else ["_B", *["_I"] * (len(phones) - 2), "_E"]
    return [SYMBOLS[phone + (mark if positions else "")] for phone, mark in zip(phones, marks, strict=True)]


@settings(max_examples=30)
@given(LEXICONS, st.booleans(), st.sampled_from([1, 2]))
def test_bigram_costs_are_those_of_the_definition(prons: list[tuple[str, ...]], positions: bool, least: int) -> None:
    """By a bigram model a word costs the product of p(w | h) / sum over the pairs seen; all costs may differ by one constant."""
    options = UnknownWordOptions(ngram_order=2, position_dependent_phones=positions, min_word_length=least)
    fst = unknown_word_model(prons, SYMBOLS, options)
    model, pairs = estimate(prons, {p for phones in prons for p in phones}, 2), pairs_of(prons)
    differences = []
    for phones in (phones for n in (1, 2, 3) for phones in itertools.product(PHONES, repeat=n)):
        steps = list(zip(("<s>", *phones), (*phones, "</s>"), strict=True))
        found = cost_of(fst, marked(phones, positions))
        if len(phones) < least or any(word not in pairs.get(before, ()) for before, word in steps):
            assert found == math.inf
            continue
        expected = -sum(math.log(model.probability(word, (before,)) / sum(model.probability(v, (before,)) for v in pairs[before]))
                        for before, word in steps)
        differences.append(found - expected)
    assert np.ptp(differences or [0]) < 1e-2  # minimisation rounds costs to 1/1024


@settings(max_examples=20)
@example([("A", "A", "A", "A"), *[("A", "B", "A", "A", "A")] * 2], 3)
@given(LEXICONS, st.integers(3, 5))
def test_longer_contexts_are_used(prons: list[tuple[str, ...]], order: int) -> None:
    """A pronunciation of the lexicon costs what its n-grams do; every one is taken, in any order, and none costs more by its best path.

    A path over #1 may cost less than the n-gram that is there: the pairs that it leads to have the share of those that are left out, too.
    """
    options = UnknownWordOptions(ngram_order=order, position_dependent_phones=False)
    fst = unknown_word_model(prons, SYMBOLS, options)
    model = estimate(prons, {p for phones in prons for p in phones}, order)
    differences = []
    for phones in {phones for phones in prons if len(phones) > 1}:
        found = cost_of_n_grams(fst, marked(phones, False))
        words = ("<s>", *phones, "</s>")
        direct = -sum(math.log(model.probability(words[i], words[max(0, i + 1 - order):i])) for i in range(2, len(words)))
        first = model.probability(words[1], words[:1]) / sum(model.probability(v, ("<s>",)) for v in pairs_of(prons)["<s>"])
        assert cost_of(fst, marked(phones, False)) <= found < math.inf
        differences.append(found - direct + math.log(first))
    if model.order > 2:
        assert np.ptp(differences) < 2e-2
    labels = set(fst.ilabel.tolist()) - {SYMBOLS["#1"]}
    assert labels <= {SYMBOLS[p] for p in PHONES} and not (fst.olabel[fst.ilabel == SYMBOLS["#1"]]).any()


def test_all_states_have_one_sum_and_pruning_makes_fewer() -> None:
    rng = np.random.default_rng(0)
    prons = [tuple(rng.choice(list(PHONES), size=rng.integers(2, 7)).tolist()) for _ in range(60)]
    sizes = {}
    for extra in (1000, 20):
        fst = unknown_word_model(prons, SYMBOLS, UnknownWordOptions(num_extra_ngrams=extra))
        sums = np.exp(-fst.final.astype(np.float64)) + np.bincount(fst.source, np.exp(-fst.weight.astype(np.float64)), fst.num_states)
        assert np.ptp(np.log(sums)) < 1e-2
        sizes[extra] = fst.num_arcs
    model = estimate(prons, set(PHONES), 4)
    assert sizes[20] < sizes[1000] and sum(map(len, prune_to(model, 20 + 5)[0].orders)) <= 25


def test_pronunciations_with_silence_do_not_count() -> None:
    entries = [Pronunciation("<unk>", 1.0, ("SPN",)), Pronunciation("ab", 1.0, ("A", "B")), Pronunciation("um", 1.0, ("A", "SPN"))]
    dictionary = DictDir([["SIL"], ["SPN"]], [["A"], ["B"]], "SIL", entries, [])
    assert spoken_pronunciations(dictionary) == [("A", "B")]
    with pytest.raises(UserError, match="no pronunciation without silence"):
        spoken_pronunciations(DictDir([["SIL"], ["SPN"]], [["A"]], "SIL", entries[:1], []))


@pytest.mark.parametrize(("options", "message"), [
    (UnknownWordOptions(ngram_order=8), "--ngram-order from 2 to 7"),
    (UnknownWordOptions(min_word_length=3), "--min-word-length 1 or 2"),
    (UnknownWordOptions(phone_disambig_symbol="A"), "one such as #1"),
    (UnknownWordOptions(), "has 2 phones; give --min-word-length 1"),
])
def test_errors(options: UnknownWordOptions, message: str) -> None:
    with pytest.raises(UserError, match=message):
        unknown_word_model([("A",), ("B",)], SYMBOLS, options)
