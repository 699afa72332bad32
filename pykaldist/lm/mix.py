"""Linear mixtures of n-gram models: one model of several, and the best weights on a held-out text.

The mixture has every n-gram that one of its models has, with p(w | h) = sum_i weight_i p_i(w | h), where each model backs off for itself,
and back-off weights by which each context sums to one (SRILM's static interpolation). A word that a model lacks has a probability of zero
in it. The weights are estimated by EM: each word of the text belongs to model i with the posterior probability
weight_i p_i / sum_j weight_j p_j, and the new weights are the means of these.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pykaldist.errors import UserError
from pykaldist.lm.model import BOS, EOS, NgramModel, Order


def mix(models: Sequence[NgramModel], weights: Sequence[float]) -> NgramModel:
    """The mixture of models with weights that sum to one. Raises UserError where they do not, or one is negative."""
    if len(models) != len(weights) or min(weights) < 0 or abs(sum(weights) - 1) > 1e-3:
        raise UserError(f"the weights of a mixture are positive and sum to one, found {' '.join(f'{weight:g}' for weight in weights)}.")
    words = [BOS, EOS, *sorted({word for model in models for word in model.words} - {BOS, EOS})]
    index = {word: i for i, word in enumerate(words)}
    to_all = [np.array([index[word] for word in model.words]) for model in models]
    to_own = [np.array([model.index.get(word, -1) for word in words]) for model in models]
    places = [np.zeros(1, np.int64) for _ in models]  # of each model's n-grams one shorter in the mixture
    states = [np.zeros(1, np.int64) for _ in models]  # of each model, for the mixture's n-grams one shorter
    orders: list[Order] = []
    for n in range(1, max(model.order for model in models) + 1):
        keys = [places[i][model.orders[n - 1].history] * len(words) + to_all[i][model.orders[n - 1].word] if n <= model.order
                else np.zeros(0, np.int64) for i, model in enumerate(models)]
        union = np.unique(np.concatenate(keys))
        history, word = union // len(words), union % len(words)
        total = np.zeros(len(union))
        for i, (model, weight) in enumerate(zip(models, weights, strict=True)):
            logprob, nodes = model.look_up(states[i][history], to_own[i][word])
            total += weight * np.exp(logprob)
            states[i], places[i] = model.contexts(nodes), np.searchsorted(union, keys[i])
        with np.errstate(divide="ignore"):
            orders.append(Order(history, word, np.log(total), np.zeros(len(union))))
    return NgramModel(words, orders).normalised()


def best_weights(probabilities: np.ndarray, precision: float = 1e-3, most: int = 500) -> tuple[np.ndarray, list[tuple[np.ndarray, float]]]:
    """The weights by which a mixture makes a text most probable, and those of each iteration with the perplexity before it.

    `probabilities`: (words, models); words that are zero in all are left out. EM ends where no weight moves by more than `precision`.
    Raises UserError where no word is left.
    """
    rows = probabilities[probabilities.sum(1) > 0]
    if not len(rows):
        raise UserError("no word of the text has a probability in any of the models.")
    weights = np.full(rows.shape[1], 1 / rows.shape[1])
    steps: list[tuple[np.ndarray, float]] = []
    for _ in range(most):
        shares = rows * weights
        sums = shares.sum(1)
        steps.append((weights, float(np.exp(-np.log(sums).mean()))))
        new = (shares / sums[:, None]).mean(0)
        done = bool(np.abs(new - weights).max() < precision)
        weights = new
        if done:
            break
    return weights, steps
