"""Pruning of n-gram models by relative entropy, and their cutting to a vocabulary.

Stolcke ("Entropy-based pruning of backoff language models", 1998): leaving out the n-gram hw alone makes the context's back-off weight
a'(h) = (1 - seen(h) + p(w | h)) / (1 - below(h) + p(w | h')), where seen(h) and below(h) are the sums of p(v | h) and p(v | h') over the
words v that have an n-gram behind h; and the relative entropy of the model before to that after is

    D = -P(h) ( p(w | h) (log p(w | h') + log a'(h) - log p(w | h)) + (1 - seen(h)) (log a'(h) - log a(h)) ).

P(h) is the product of the probabilities of the words of h, with that of </s> for <s>, which stands before as many sentences. An n-gram
goes where exp(D) - 1, the rise of the perplexity, is below the threshold, unless it is the history of one that stays. Orders are pruned
from the highest to the lowest, each n-gram judged by the model before; the weights are computed anew at the end.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from pykaldist.errors import UserError
from pykaldist.lm.model import BOS, EOS, NgramModel, Order


def divergences(model: NgramModel, n: int) -> np.ndarray:
    """The relative entropy D, in nats a word, that leaving out each n-gram of order n >= 2 alone would make."""
    order = model.orders[n - 1]
    seen, below, _ = model.seen_and_below(n)
    rest, room = np.maximum(1 - seen, 0.0)[order.history], np.maximum(1 - below, 0.0)[order.history]
    p, lower = np.exp(order.logprob), model.lower(n)
    weight = model.orders[n - 2].backoff[order.history]
    with np.errstate(divide="ignore", invalid="ignore"):
        anew = np.log(rest + p) - np.log(room + np.exp(lower))
        change = p * np.where(p > 0, lower + anew - order.logprob, 0.0) + np.where(rest > 0, rest * (anew - weight), 0.0)
    return -np.exp(_context_logprobs(model, n - 1))[order.history] * np.nan_to_num(change, nan=0.0, posinf=0.0, neginf=-np.inf)


def _context_logprobs(model: NgramModel, n: int) -> np.ndarray:
    """The logarithms of P(h) for the n-grams of order n."""
    total = model.orders[0].logprob.copy()
    total[model.orders[0].word == 0] = total[model.orders[0].word == 1]
    for order in model.orders[1:n]:
        total = total[order.history] + order.logprob
    return total


def prune(model: NgramModel, threshold: float, least_order: int = 2) -> NgramModel:
    """The model without the n-grams of `least_order` words and more whose loss raises the perplexity by less than the share `threshold`."""
    keep = [np.ones(len(order), bool) for order in model.orders]
    for n in range(model.order, max(least_order, 2) - 1, -1):
        keep[n - 1] = np.expm1(np.maximum(divergences(model, n), 0.0)) >= threshold  # which rounding makes negative
    return model.kept(keep).normalised()


def prune_to(model: NgramModel, ngrams: int, least_order: int = 2) -> tuple[NgramModel, float]:
    """The model pruned to at most `ngrams` n-grams (unigrams and all, which always stay), and the threshold that does it."""
    low, high = 0.0, 1e-12
    if sum(map(len, model.orders)) <= ngrams:
        return model, 0.0
    while sum(map(len, prune(model, high, least_order).orders)) > ngrams:
        if high > 1e9:
            raise UserError(f"the model cannot be pruned to {ngrams} n-grams: it has {len(model.orders[0])} words, which all stay.")
        low, high = high, 10 * high
    for _ in range(12):
        middle = (low * high) ** 0.5 if low else high / 10
        low, high = (low, middle) if sum(map(len, prune(model, middle, least_order).orders)) <= ngrams else (middle, high)
    return prune(model, high, least_order), high


def prune_low(model: NgramModel) -> NgramModel:
    """The model without the n-grams that are less probable than backing off says, unless they are a history of others."""
    for n in range(model.order, 1, -1):
        keep = [np.ones(len(order), bool) for order in model.orders]
        order = model.orders[n - 1]
        keep[n - 1] = order.logprob >= model.orders[n - 2].backoff[order.history] + model.lower(n)
        model = model.kept(keep)
    return model.normalised()


def change_vocab(model: NgramModel, words: Iterable[str], order: int = 0, low: bool = False) -> NgramModel:
    """Cut a model to the n-grams of `words`, and to an order; back-off weights are computed anew, unigrams scaled to a sum of one.

    With `low` n-grams go that are less probable than backing off says, unless a longer one begins with them. Raises UserError
    where no word is left.
    """
    cut = limited(model, words, order)
    total = float(cut.seen_and_below(1)[0][0])
    if len(cut.words) < 3 or total <= 0:
        raise UserError("the language model has no word of the vocabulary; do they have one spelling (upper or lower case)?")
    cut.orders[0].logprob = cut.orders[0].logprob - np.log(total)
    cut = NgramModel(cut.words, cut.orders)
    return prune_low(cut) if low else cut.normalised()


def limited(model: NgramModel, words: Iterable[str], order: int = 0) -> NgramModel:
    """The n-grams of a model whose words are all among `words`, <s> and </s>, up to an order (0: all); weights stay as they are."""
    keep_words = {*words, BOS, EOS}
    inside = np.array([word in keep_words for word in model.words])
    number = np.cumsum(inside) - 1
    orders: list[Order] = []
    places, stays = np.zeros(1, np.int64), np.ones(1, bool)
    for one in model.orders[:order or None]:
        keep = inside[one.word] & stays[one.history]
        if not keep.any():
            break
        orders.append(Order(places[one.history[keep]], number[one.word[keep]], one.logprob[keep], one.backoff[keep]))
        places, stays = np.cumsum(keep) - 1, keep
    orders[-1].backoff = np.zeros(len(orders[-1]))
    return NgramModel([word for word in model.words if word in keep_words], orders)
