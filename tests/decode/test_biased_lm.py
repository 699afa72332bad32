"""Biased language models: probabilities that sum to one, by a slow reference too; graphs that follow a transcript."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.decode.biased_lm import (
    BEGIN,
    END,
    BiasedGraphs,
    BiasedLmOptions,
    biased_grammar,
    biased_probabilities,
    common_words,
    groups_of,
)
from pykaldist.decode.lm_rescore import Grammar
from pykaldist.errors import UserError
from pykaldist.hmm.gmm.model_files import read_transition_model, read_tree
from pykaldist.io.lang import LangDir

SENTENCES = st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=8), min_size=1, max_size=4)


@settings(max_examples=40)
@given(SENTENCES, st.integers(2, 4), st.integers(2, 6))
def test_behind_each_history_the_probabilities_of_all_words_sum_to_one(sentences: list[list[int]], order: int, least: int) -> None:
    common = common_words([[1, 1, 6], [7]], 3)
    grammar = Grammar(biased_grammar(sentences, common, 9, BiasedLmOptions(ngram_order=order, min_lm_state_count=least)), "G.fst")
    words = {word for sentence in sentences for word in sentence} | set(common)
    states, todo = {grammar.start}, [grammar.start]
    while todo:
        state = todo.pop()
        steps = [grammar.step(state, word) for word in words]
        assert all(step is not None for step in steps)
        total = sum(math.exp(-step[1]) for step in steps if step) + math.exp(-grammar.final(state))
        assert total == pytest.approx(1, abs=1e-5)
        new = {step[0] for step in steps if step} - states
        states |= new
        todo += new


@settings(max_examples=40)
@given(SENTENCES)
def test_probabilities_against_the_formula(sentences: list[list[int]]) -> None:
    """Bigrams, counted pair by pair."""
    options = BiasedLmOptions(ngram_order=2, discounting_constant=0.4, top_n_words_weight=0.5)
    found = biased_probabilities(sentences, {1: 0.25, 9: 0.25}, options)
    pairs = Counter((a, b) for s in sentences for a, b in zip([BEGIN, *s], [*s, END], strict=True))
    words = Counter(b for _, b in pairs.elements())
    for word in {*words, 1, 9}:
        share = words[word] / words.total() + 0.5 * {1: 0.25, 9: 0.25}.get(word, 0.0)
        assert found[()][word] == pytest.approx(share / 1.25)
    for (a, b), count in pairs.items():
        behind = {y: n for (x, y), n in pairs.items() if x == a}
        expected = (count - 0.4 + 0.4 * len(behind) * found[()][b]) / sum(behind.values())
        assert found[(a,)][b] == pytest.approx(expected)
    assert set(found) == {(), *((a,) for a, _ in pairs)}


def test_a_longer_history_is_kept_where_it_is_frequent() -> None:
    sentences = [[1, 2, 3]] * 5 + [[4, 2, 5]]
    found = biased_probabilities(sentences, {}, BiasedLmOptions(ngram_order=3, min_lm_state_count=5))
    assert (1, 2) in found and (4, 2) not in found and found[1, 2][3] > found[2,][3] > found[()][3]


def test_groups_have_enough_words_and_lose_none() -> None:
    words = {f"u{n}": [1] * n for n in range(9)}
    groups = list(groups_of(list(words), words, 8))
    assert [utt for group in groups for utt in group] == list(words)
    assert all(sum(len(words[utt]) for utt in group) >= 8 for group in groups[:-1]) and len(groups) == 3


def test_bad_options_are_refused() -> None:
    for options in ({"ngram_order": 1}, {"discounting_constant": 1.0}, {"top_n_words": -1}):
        with pytest.raises(UserError, match="expected --"):
            BiasedLmOptions(**options)


def test_a_graph_speaks_the_words_of_its_model_and_no_others(golden: Path) -> None:
    kaldi = golden / "an4_kaldi"
    lang = LangDir(kaldi / "lang")
    tree, model = read_tree(kaldi / "tri3_ali/tree"), read_transition_model(kaldi / "tri3_ali/final.mdl")
    sentence = lang.word_ids(["TWO", "OH", "ONE", "A", "B"])[0]
    common = dict.fromkeys(lang.word_ids(["YES", "NO"])[0], 0.1)
    graph = BiasedGraphs(lang, tree, model, common, BiasedLmOptions()).graph([sentence])
    assert set(np.unique(graph.olabel).tolist()) == {0, *sentence, *common} and graph.ilabel.max() <= model.num_transition_ids
    plain = BiasedGraphs(lang, tree, model, {}, BiasedLmOptions()).graph([sentence])
    assert plain.num_arcs < graph.num_arcs and set(np.unique(plain.olabel).tolist()) == {0, *sentence}
