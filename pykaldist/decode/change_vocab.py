"""N-gram models read from ARPA files, and cut to a vocabulary, as SRILM's change-lm-vocab does it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace

from pykaldist.decode.arpa import check_arpa, read_arpa_lines
from pykaldist.decode.ngram import BOS, EOS, Ngram, NgramModel
from pykaldist.errors import UserError

_LEAST = 1e-7  # of a probability that is left to words that were not seen behind a context


def read_arpa(path: str | os.PathLike[str], lower_case: bool = False) -> NgramModel:
    """Read an ARPA file (gzipped if it ends in `.gz`); of words that are one in lower case the first counts.

    Raises UserError, with the line, for an error in the file.
    """
    check_arpa(path, set())
    probabilities: list[dict[Ngram, float]] = []
    backoffs: dict[Ngram, float] = {}
    for line in read_arpa_lines(path):
        if line.startswith("\\") and line.rstrip().endswith("-grams:"):
            probabilities.append({})
        elif probabilities and (fields := line.split()) and not line.startswith("\\"):
            order = len(probabilities)
            ngram = tuple((word.lower() if lower_case else word) for word in fields[1:order + 1])
            if ngram not in probabilities[-1]:
                probabilities[-1][ngram] = 10.0 ** float(fields[0])
                if len(fields) == order + 2:
                    backoffs[ngram] = 10.0 ** float(fields[-1])
    probabilities[0].pop((BOS,), None)  # which is not predicted
    return NgramModel(sorted(ngram[0] for ngram in probabilities[0]), probabilities, backoffs)


def change_vocab(model: NgramModel, words: Iterable[str], order: int | None = None, prune_low: bool = False) -> NgramModel:
    """Cut a model to the n-grams of `words`, and to an order; back-off weights are computed anew, unigrams scaled to a sum of one.

    With `prune_low` n-grams go that are less probable than backing off says, unless a longer one begins with them. Raises UserError
    where no word is left.
    """
    keep = {*words, BOS, EOS}
    left = [{ngram: p for ngram, p in ngrams.items() if keep.issuperset(ngram)} for ngrams in model.probabilities[:order]]
    total = sum(left[0].values())
    if len(left[0]) < 2 or total <= 0:
        raise UserError("the language model has no word of the vocabulary; do they have one spelling (upper or lower case)?")
    left[0] = {ngram: p / total for ngram, p in left[0].items()}
    if prune_low:
        for n in range(len(left) - 1, 0, -1):
            longer = {ngram[:-1] for ngram in left[n + 1]} if n + 1 < len(left) else set()
            below = replace(model, probabilities=left[:n])
            left[n] = {ngram: p for ngram, p in left[n].items() if ngram in longer
                       or p >= model.backoffs.get(ngram[:-1], 1.0) * below.probability(ngram[-1], ngram[1:-1])}
    while len(left) > 1 and not left[-1]:
        left.pop()
    return _normalised(NgramModel(sorted(ngram[0] for ngram in left[0]), left, {}))


def _normalised(model: NgramModel) -> NgramModel:
    """The model with the back-off weights by which all contexts sum to one; contexts that back off to nothing are scaled."""
    for n in range(1, model.order):
        seen: dict[Ngram, float] = {}
        below: dict[Ngram, float] = {}
        for ngram, p in model.probabilities[n].items():
            context = ngram[:-1]
            seen[context] = seen.get(context, 0.0) + p
            below[context] = below.get(context, 0.0) + model.probability(ngram[-1], ngram[1:-1])
        for context, p in seen.items():
            whole = 1.0 - below[context] < _LEAST  # every word was seen behind this context
            model.backoffs[context] = 1.0 if whole else max(1.0 - p, _LEAST) / (1.0 - below[context])
        model.probabilities[n] = {ngram: p / seen[ngram[:-1]] if 1.0 - below[ngram[:-1]] < _LEAST else p
                                  for ngram, p in model.probabilities[n].items()}
    return model
