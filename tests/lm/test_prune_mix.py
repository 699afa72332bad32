"""Pruned and mixed models: distributions, with the divergence that the formula says, by sums over all contexts and words."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.errors import UserError
from pykaldist.lm.mix import best_weights, mix
from pykaldist.lm.model import NgramModel
from pykaldist.lm.prune import divergences, limited, prune, prune_to
from pykaldist.lm.score import score
from pykaldist.lm.smoothing import estimate

WORDS = ["a", "b", "c", "d"]
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=7), min_size=2, max_size=15)
TEXT = [line.split() for line in ("a b c d", "a b a b", "c a b d a", "d d a b", "b c d", "a b c a b c d", "c c c", "a a a a b", "d b",
                                  "c d a")]


def without(model: NgramModel, n: int, i: int) -> NgramModel:
    """The model without one n-gram."""
    keep = [np.ones(len(order), bool) for order in model.orders]
    keep[n - 1][i] = False
    return model.kept(keep).normalised()


@pytest.mark.parametrize("smoothing", ["kneser-ney", "witten-bell"])
@pytest.mark.parametrize("n", [2, 3])
def test_the_divergence_is_the_definitions(smoothing: str, n: int) -> None:
    """D = P(h) sum_w p(w | h) log (p(w | h) / q(w | h)), for only the context h changes where no longer one stands on it."""
    model = estimate(TEXT, WORDS, n, smoothing)
    found = divergences(model, n)
    assert (found > -1e-12).all()
    for i, text in enumerate(model.texts(n)):
        *context, _ = text.split()
        other = without(model, n, i)
        of_context = 1.0
        for k, word in enumerate(context):
            of_context *= model.probability("</s>" if word == "<s>" else word, context[:k])
        expected = sum(p * math.log(p / other.probability(word, context))
                       for word in model.vocabulary if (p := model.probability(word, context)) > 0)
        assert found[i] == pytest.approx(of_context * expected, rel=1e-6, abs=1e-12)


@settings(max_examples=30)
@given(TEXTS, st.integers(1, 4), st.sampled_from(["kneser-ney", "witten-bell"]), st.floats(1e-6, 0.3))
def test_a_pruned_model_is_a_distribution(text: list[list[str]], order: int, smoothing: str, threshold: float) -> None:
    model = estimate(text, WORDS, order, smoothing)
    less, least = prune(model, threshold), prune(model, 2 * threshold)
    assert less.worst_sum() < 1e-8 and prune(model, 0.0).texts(model.order) == model.texts(model.order)
    for n in range(1, less.order + 1):
        assert set(less.texts(n)) <= set(model.texts(n))
        assert n > least.order or set(least.texts(n)) <= set(less.texts(n))
    assert less.words == model.words and len(prune(model, threshold, order + 1).orders) == model.order


def test_perplexity_rises_by_what_was_predicted() -> None:
    """On text that the model itself draws, the logarithm of the perplexity rises by D a word, whatever was left out one at a time."""
    rng = np.random.default_rng(0)
    model = estimate(TEXT, WORDS, 2, "witten-bell")
    index = range(len(model.vocabulary))
    rows = {word: [model.probability(w, [word]) for w in model.vocabulary] for word in ["<s>", *WORDS]}
    text: list[list[str]] = []
    for _ in range(4000):
        sentence = ["<s>"]
        while sentence[-1] != "</s>":
            sentence.append(model.vocabulary[rng.choice(index, p=rows[sentence[-1]])])
        text.append(sentence)
    before = score(model, text).logprob
    found = divergences(model, 2)
    share = {word: sum(s.count(word) for s in text) / len(before) for word in ["<s>", *WORDS]}
    for i in np.argsort(found)[-4:]:
        context = model.texts(2)[i].split()[0]
        of_context = model.probability("</s>" if context == "<s>" else context, [])
        rise = (before - score(without(model, 2, int(i)), text).logprob).mean()
        assert rise == pytest.approx(found[i] / of_context * share[context], rel=0.25)  # with the text's own P(h); 17000 words


def test_to_a_number_of_ngrams() -> None:
    model = estimate(TEXT, WORDS, 3)
    total = sum(map(len, model.orders))
    for wanted in (total, total - 5, 12, 6):
        pruned, threshold = prune_to(model, wanted)
        assert 0 <= wanted - sum(map(len, pruned.orders)) <= 4 and (threshold > 0) == (wanted < total)
    with pytest.raises(UserError, match="cannot be pruned to 3 n-grams: it has 6 words"):
        prune_to(model, 3)
    only = limited(model, ["a", "b"], 2)
    assert only.words == ["<s>", "</s>", "a", "b"] and only.order == 2
    assert only.orders[0].logprob[2] == model.orders[0].logprob[2]


@settings(max_examples=30)
@given(TEXTS, TEXTS, st.integers(1, 3), st.integers(1, 4), st.floats(0, 1))
def test_a_mixture_has_the_weighted_probabilities(text: list[list[str]], other: list[list[str]], order: int, longer: int,
                                                  weight: float) -> None:
    models = [estimate(text, WORDS, order), estimate([[*s, "x"] for s in other], [*WORDS, "x"], longer, "witten-bell")]
    mixed = mix(models, [weight, 1 - weight])
    assert mixed.worst_sum() < 1e-8 and set(mixed.words) == {"<s>", "</s>", *WORDS, "x"}
    for n in range(1, mixed.order + 1):
        texts = [set(model.texts(n)) for model in models if n <= model.order]
        assert set(mixed.texts(n)) == set().union(*texts)
        for ngram in mixed.texts(n)[:40]:
            *context, word = ngram.split()
            if word != "<s>" and "x" not in context:  # of which the first model knows nothing
                expected = sum(w * model.probability(word, context) for w, model in zip([weight, 1 - weight], models, strict=True)
                               if word in model.index)
                assert mixed.probability(word, context) == pytest.approx(expected, rel=1e-6, abs=1e-8)


def test_weights_are_the_best_on_a_text() -> None:
    models = [estimate(TEXT[:5], WORDS, 2), estimate(TEXT[5:], WORDS, 2)]
    table = np.exp(np.stack([score(model, TEXT[3:7]).logprob for model in models], 1))
    weights, steps = best_weights(table, 1e-6)
    assert weights.sum() == pytest.approx(1)
    perplexities = [perplexity for _, perplexity in steps]
    assert all(after <= before + 1e-12 for before, after in itertools.pairwise(perplexities)) and len(steps) > 2
    grid = [float(-np.log(table @ [w, 1 - w]).mean()) for w in np.linspace(0, 1, 1001)]
    assert weights[0] == pytest.approx(np.linspace(0, 1, 1001)[int(np.argmin(grid))], abs=2e-3)
    with pytest.raises(UserError, match="no word of the text"):
        best_weights(np.zeros((3, 2)))
    with pytest.raises(UserError, match=r"sum to one, found 0\.5 0\.6"):
        mix(models, [0.5, 0.6])
