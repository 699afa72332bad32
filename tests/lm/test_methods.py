"""Every method of smoothing and what is left out: sums over every context, and a slow reference that counts in the text each time."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.errors import UserError
from pykaldist.lm import texts
from pykaldist.lm.arpa import read_arpa, write_arpa
from pykaldist.lm.counts import count_ngrams, numbers_of
from pykaldist.lm.model import NgramModel
from pykaldist.lm.smoothing import METHODS, Smoothing, of_counts, word_list

WORDS = ["a", "b", "c", "d"]
TEXTS = st.lists(st.lists(st.sampled_from([*WORDS, "strange"]), min_size=1, max_size=7), min_size=1, max_size=12).filter(
    lambda text: any(word in WORDS for sentence in text for word in sentence))
VALUES = {"good-turing": 3.0, "absolute": 0.7, "additive": 0.5}


def made(text: list[list[str]], smoothings: list[Smoothing], unigrams: str = "leftover", ends: str = "",
         words: list[str] = WORDS) -> NgramModel:
    listed = word_list(words)
    numbers = numbers_of(text, {word: i for i, word in enumerate(listed)})
    return of_counts(listed, count_ngrams(numbers, len(listed), len(smoothings), listed.index(ends) if ends else -2), smoothings, unigrams)


@settings(max_examples=60)
@given(TEXTS, st.integers(1, 4), st.sampled_from(METHODS), st.booleans(), st.integers(1, 3), st.booleans(),
       st.sampled_from(["leftover", "uniform"]))
def test_every_context_sums_to_one(text: list[list[str]], order: int, method: str, interpolate: bool, least: int, by_text: bool,
                                   unigrams: str) -> None:
    smoothings = [Smoothing(method, interpolate, 1 if n == 1 else least, VALUES.get(method, 0.0), by_text) for n in range(1, order + 1)]
    model = made(text, smoothings, unigrams)
    assert model.worst_sum() < 1e-9
    assert model.words == ["<s>", "</s>", *WORDS]
    for context in ([], ["<s>"], ["a"], ["<s>", "a"], ["b", "a"], ["d", "c", "a"], ["strange", "a"]):
        assert math.fsum(model.probability(word, context) for word in model.vocabulary) == pytest.approx(1, abs=1e-9)
    for n, one in enumerate(model.orders[1:], 2):  # what was seen too rarely is left out, but for histories
        histories = set(model.orders[n].history.tolist()) if n < model.order else set()
        for i, ngram in enumerate(model.texts(n)):
            count = sum(["<s>", *s, "</s>"][k:k + n] == ngram.split() for s in text for k in range(len(s) + 2))
            assert i in histories or count >= (least if by_text or "kneser" not in method else 1)
        assert (np.diff(one.history) >= 0).all()


TEXT = [line.split() for line in ("a b c d", "a b a b", "c a b d a", "d d a b", "b c d", "a b c a b c d", "c c c", "a a a a b", "d b",
                                  "c d a", "b b a", "a c b d", "a b c")]


Probability = Callable[[str, tuple[str, ...]], float]


def slow(text: list[list[str]], order: int, method: str, value: float, least: int, interpolate: bool) -> Probability:
    """p(word, context), in the words of the definition, by dictionaries, for Witten-Bell, Good-Turing, absolute and additive smoothing."""
    sentences = [["<s>", *s, "</s>"] for s in text]
    counts = [Counter(tuple(s[i:i + n]) for s in sentences for i in range(len(s) - n + 1)) for n in range(1, order + 1)]
    del counts[0][("<s>",)]
    vocabulary = [*WORDS, "</s>"]

    def left(ngram: tuple[str, ...]) -> float:
        n, history = len(ngram), ngram[:-1]
        c = counts[n - 1][ngram]
        behind = {g: k for g, k in counts[n - 1].items() if g[:-1] == history}
        total = sum(behind.values())
        if method == "witten-bell":
            return c * total / (total + len(behind))
        if method == "absolute":
            return max(c - value, 0)
        if method == "additive":
            return (c + value) * total / (total + value * len(vocabulary))
        of = Counter(counts[n - 1].values())
        if c > value or not of[1]:
            return c
        share = (value + 1) * of[value + 1] / of[1]
        if share >= 1:
            return c
        ratio = ((c + 1) * of[c + 1] / of[c] / c - share) / (1 - share)
        return c * (ratio if 1e-6 < ratio <= 1 else 1)

    @functools.cache
    def p(word: str, context: tuple[str, ...]) -> float:
        n = len(context) + 1
        behind = {g: k for g, k in counts[n - 1].items() if g[:-1] == context}
        if not behind:
            return p(word, context[1:])
        total = sum(behind.values())
        kept = {g for g, k in behind.items()
                if k >= least or (n < order and any(longer[:-1] == g and counts[n][longer] >= least for longer in counts[n]))}
        if n == 1:
            found = {g: left(g) / total for g in behind}
            unseen = [w for w in vocabulary if (w,) not in behind] or vocabulary
            return found.get((word,), 0) + (1 - sum(found.values())) / len(unseen) * (word in unseen)
        scale = 1.0
        if 1 - sum(left(g) for g in behind) / total < 1e-6:
            scale = total / (total + 1)
        taken = 1 - scale * sum(left(g) for g in behind) / total
        found = {g: scale * left(g) / total + (taken * p(g[-1], context[1:]) if interpolate else 0) for g in kept}
        if len(found) == len(vocabulary):  # nothing is left to give mass to
            return found[(*context, word)] / sum(found.values())
        if (*context, word) in found:
            return found[(*context, word)]
        return (1 - sum(found.values())) / (1 - sum(p(g[-1], context[1:]) for g in found)) * p(word, context[1:])

    return p


@pytest.mark.parametrize(("method", "value", "least", "interpolate"), [
    ("witten-bell", 0, 1, False), ("witten-bell", 0, 1, True), ("good-turing", 3, 1, False), ("absolute", 0.6, 1, False),
    ("absolute", 0.6, 1, True), ("absolute", 0.6, 2, False), ("absolute", 0.6, 2, True), ("additive", 0.5, 1, False)])
def test_it_is_the_definition(method: str, value: float, least: int, interpolate: bool) -> None:
    model = made(TEXT, [Smoothing(method, interpolate, 1 if n == 1 else least, value) for n in (1, 2, 3)])
    reference = slow(TEXT, 3, method, value, least, interpolate)
    for context in [(), ("<s>",), ("a",), ("<s>", "a"), ("a", "b"), ("c", "d"), ("d", "c"), ("c", "c")]:
        for word in (*WORDS, "</s>"):
            assert model.probability(word, context) == pytest.approx(reference(word, context), rel=1e-9), (context, word)


def test_words_that_were_not_seen_get_what_is_left() -> None:
    model = made(TEXT, [Smoothing("kneser-ney", True)] * 2, words=[*WORDS, "x", "y"])
    assert model.probability("x", []) == pytest.approx(model.probability("y", [])) and 0 < model.probability("x", []) < 0.2
    assert any("1-grams are too few" in note for note in model.notes)
    with pytest.raises(UserError, match="no words of the vocabulary"):
        of_counts(["<s>", "</s>"], count_ngrams(np.zeros(0, np.int64), 2, 2), [Smoothing()] * 2)


def test_histories_end_at_a_word() -> None:
    model = made([["a", "d", "b", "c", "a", "d", "b"], ["b", "d", "c"]], [Smoothing()] * 4, ends="d")
    for n in (3, 4):
        assert model.texts(n) and not any("d" in text.split()[1:-1] for text in model.texts(n))
    assert "d b c" in model.texts(3) and "a d" in model.texts(2) and "c a d" in model.texts(3)
    assert model.worst_sum() < 1e-9
    assert model.probability("b", ["a", "d"]) == model.probability("b", ["d"]) == model.probability("b", ["c", "d"])


def test_text_has_sentence_marks_or_not() -> None:
    index = {"<s>": 0, "</s>": 1, "a": 2}
    assert numbers_of([["a", "x"], ["<s>", "a", "</s>"], ["a", "<s>", "</s>"]], index).tolist() == [0, 2, -1, 1, 0, 2, 1, 0, 2, -1, 1]
    assert numbers_of([["x"]], index, 2).tolist() == [0, 2, 1]


@settings(max_examples=30)
@given(TEXTS, st.integers(1, 4), st.booleans())
def test_files_hold_the_model(tmp_path_factory: pytest.TempPathFactory, text: list[list[str]], order: int, packed: bool) -> None:
    model = made(text, [Smoothing()] * order, "uniform")
    path = tmp_path_factory.mktemp("lm") / ("lm.gz" if packed else "lm")
    write_arpa(model, path)
    again = read_arpa(path)
    assert again.words == model.words and [again.texts(n) for n in range(1, order + 1) if n <= again.order] == [
        model.texts(n) for n in range(1, model.order + 1)]
    for one, other in zip(again.orders, model.orders, strict=True):
        assert np.allclose(one.logprob, np.maximum(other.logprob, -99 * math.log(10)), rtol=1e-5, atol=1e-6) or np.isneginf(one.logprob[0])
        assert np.allclose(one.backoff, other.backoff, rtol=1e-5, atol=1e-6)
    assert len(read_arpa(path, 1).orders) == 1


HEAD = ("\\data\\\nngram 1=3\nngram 2=2\n\n\\1-grams:\n-99 <s> -0.3\n-0.5 </s>\n-0.2 a -0.1\n\n"
        "\\2-grams:\n-0.2 <s> a\n-0.3 a </s>\n\n\\end\\\n")


@pytest.mark.parametrize(("old", "new", "message"), [
    ("\\data\\", "data", r"lm is no ARPA language model"),
    ("ngram 2=2", "ngram 3=2", r"line 3: expected `ngram 2=COUNT`, found 'ngram 3=2'"),
    ("ngram 2=2", "ngram 2=3", r"line 14: \\data\\ promises 3 2-grams, and 2 are there"),
    ("-0.2 a -0.1", "-0.2 a b -0.1", r"line 8: expected a log-probability, 1 words and perhaps a back-off weight, found '-0.2 a b -0.1'"),
    ("-0.2 <s> a", "0.2 <s> a", r"line 11: expected a base-10 log-probability, at most 0, found '0.2'"),
    ("-0.2 <s> a", "-0.2 <s> b", r"line 11: the word 'b' of this 2-gram is not among the unigrams"),
    ("-0.2 a -0.1", "-0.2 a x", r"line 8: expected a back-off weight, found 'x'"),
    ("-0.5 </s>", "-0.5 b", r"the unigrams lack </s>"), ("-0.2 <s> a", "-0.2 a </s>", r"line 12: the 2-gram 'a </s>' is given twice"),
    ("\\2-grams:", "\\3-grams:", r"line 10: expected the section \\2-grams:, found '\\\\3-grams:'"),
    ("\\end\\", "", r"expected \\end\\, found 'the end of the file'")])
def test_errors_of_files_have_a_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "lm"
    path.write_text(HEAD)
    assert read_arpa(path).texts(2) == ["<s> a", "a </s>"]
    path.write_text(HEAD.replace(old, new))
    with pytest.raises(UserError, match=message):
        read_arpa(path)


@settings(max_examples=30)
@given(TEXTS, st.integers(1, 4), st.randoms(use_true_random=False), st.integers(1, 200))
def test_files_may_have_any_order(tmp_path_factory: pytest.TempPathFactory, text: list[list[str]], order: int, random: Random,
                                  block: int) -> None:
    """N-grams are sorted, however they stand in their sections and however much is read at a time."""
    path = tmp_path_factory.mktemp("lm") / "lm"
    write_arpa(made(text, [Smoothing()] * order, "uniform"), path)
    expected = read_arpa(path)
    head, *sections = path.read_text().split("\n\n")
    lines = [section.split("\n") for section in sections]
    path.write_text("\n\n".join([head, *("\n".join([mark, *random.sample(rest, len(rest))]) for mark, *rest in lines)]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(texts, "_BLOCK", block)
        found = read_arpa(path)
    assert found.words == expected.words
    for one, other in zip(found.orders, expected.orders, strict=True):
        for name in ("history", "word", "logprob", "backoff"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_a_longer_ngram_needs_its_history(tmp_path: Path) -> None:
    three = HEAD.replace("ngram 2=2", "ngram 2=2\nngram 3=1").replace("\\end\\", "\\3-grams:\n-0.1 a a </s>\n\n\\end\\")
    (tmp_path / "lm").write_text(three)
    with pytest.raises(UserError, match=r"line 16: the history 'a a' of this 3-gram is not among the 2-grams"):
        read_arpa(tmp_path / "lm")
