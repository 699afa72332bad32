"""Estimation of n-gram models from counts: Kneser-Ney, Witten-Bell, Good-Turing, absolute and additive discounting.

With c(hw) the count of an n-gram, c(h.) the sum over its context's words, d(hw) the part of the count that discounting leaves, and
gamma(h) = 1 - sum_w d(hw) / c(h.) the mass that it takes,

    interpolated:  p(w | h) = d(hw) / c(h.) + gamma(h) p(w | h')        otherwise:  p(w | h) = d(hw) / c(h.)

for the n-grams that were seen, and backoff(h) p(w | h') for others. Interpolated, backoff(h) = gamma(h); otherwise, and where n-grams
are left out that were seen too rarely, it is what makes the context sum to one.

Modified Kneser-Ney (Chen & Goodman, "An empirical study of smoothing techniques for language modeling", 1998, section 3): c is the count in
the highest order and for n-grams that start with <s>, else the number of different words seen before the n-gram. With n_k the number of
n-grams of that order whose c is k, and Y = n_1 / (n_1 + 2 n_2), d = c - D(c),

    D(k) = k - (k + 1) Y n_{k+1} / n_k   for k = 1, 2, 3,   D(c > 3) = D(3);   unmodified: D(c) = Y.

A small text may have n_k = 0 or discounts outside of (0, k]; that order then takes 0.5, 1 and 1.5 (KenLM's fall-back), and
`NgramModel.notes` says so. Witten-Bell: d = c c(h.) / (c(h.) + T(h)) with T(h) different words seen after h. Good-Turing (Katz, 1987):
d = c (r*/c - A) / (1 - A) for c <= k, with r* = (c + 1) n_{c+1} / n_c and A = (k + 1) n_{k+1} / n_1, else c; a ratio d / c outside of
(0, 1] is taken as 1. Additive: d = (c + a) c(h.) / (c(h.) + a |V|).

Unigrams: `uniform` interpolates them with 1 / |V|; `leftover`, which is SRILM's way, gives the mass that discounting took to the words
that were not seen, in equal parts, or to all where every word was seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pykaldist.errors import UserError
from pykaldist.lm.counts import Counts, count_ngrams, numbers_of
from pykaldist.lm.model import BOS, EOS, NgramModel, Order, blocks
from pykaldist.progress import Progress

FALLBACK_DISCOUNTS = (0.5, 1.0, 1.5)
METHODS = ("kneser-ney", "unmodified-kneser-ney", "witten-bell", "good-turing", "absolute", "additive")
SMOOTHINGS = METHODS[0], METHODS[2]  # those of utils/train_lm.sh


@dataclass
class Smoothing:
    """How one order is smoothed. `value`: of absolute discounting what is taken, of additive what is added, of Good-Turing its k."""

    method: str = "kneser-ney"
    interpolate: bool = True
    min_count: int = 1  # n-grams with a smaller count (Kneser-Ney's, where that is the method) are left out
    value: float = 0.0
    by_text: bool = False  # min_count is about the counts of the text with every method


def estimate(sentences: Iterable[Sequence[str]], vocabulary: Iterable[str], order: int = 3, smoothing: str = "kneser-ney") -> NgramModel:
    """Estimate an interpolated model of `sentences` over a closed vocabulary (</s> is added, <s> is not predicted).

    Raises UserError for an empty text, a word outside the vocabulary, or <s> or </s> inside a sentence. An order that no sentence is
    long enough for is lowered, and `notes` says so.
    """
    if order < 1 or smoothing not in SMOOTHINGS:
        raise UserError(f"expected an order of at least 1 and a smoothing of {' or '.join(SMOOTHINGS)}, found {order} and {smoothing!r}.")
    words = set(vocabulary) - {BOS, EOS}
    strange: set[str] = set()

    def checked() -> Iterator[Sequence[str]]:
        for sentence in filter(None, sentences):
            strange.update({sentence[0]} & {BOS}, {sentence[-1]} & {EOS})
            yield sentence

    numbered = word_list(words)
    numbers = numbers_of(checked(), {word: i for i, word in enumerate(numbered)}, strange=strange)
    if not len(numbers):
        raise UserError("the text has no words to estimate a language model from.")
    if strange:
        raise UserError(f"word {min(strange)} of the text is not in the vocabulary; add it to the lexicon or give --oov.")
    return of_counts(numbered, count_ngrams(numbers, len(numbered), order), [Smoothing(smoothing)] * order)


def word_list(words: Iterable[str]) -> list[str]:
    """The words in the order of their numbers: <s>, </s>, then the others sorted."""
    return [BOS, EOS, *sorted(set(words) - {BOS, EOS})]


def of_counts(words: list[str], counts: list[Counts], smoothings: Sequence[Smoothing], unigrams: str = "uniform") -> NgramModel:
    """Make a model of counts; `smoothings` has one for each order, `unigrams` is `uniform` or `leftover`.

    Raises UserError where the counts have no words. The highest order may be lower than there are smoothings for; `notes` says so.
    """
    if not counts[0].count.any():
        raise UserError("the text has no words of the vocabulary to estimate a language model from.")
    notes = [f"order {len(smoothings)} lowered to {len(counts)}, for no sentence is longer"] if len(counts) < len(smoothings) else []
    used = [one.kneser_ney if how.method.endswith("kneser-ney") else one.count for one, how in zip(counts, smoothings, strict=False)]
    keep = [(one.count if how.by_text else c) >= how.min_count for one, c, how in zip(counts, used, smoothings, strict=False)]
    for n in range(len(counts) - 1, 0, -1):
        keep[n - 1][counts[n].history[keep[n]]] = True
    while len(keep) > 1 and not keep[-1].any():
        keep.pop()
    model = _unigrams(words, counts[0], used[0], smoothings[0], unigrams, notes)
    lower = np.ones(len(counts[0]), bool)
    places = np.searchsorted(model.orders[0].word, counts[0].word)  # of the counts' n-grams among the model's
    with Progress("estimating probabilities", sum(map(len, counts[1:len(keep)])), "n-gram") as bar:
        for n in range(2, len(keep) + 1):
            model = _with_order(model, counts[n - 1], used[n - 1], keep[n - 1], np.where(lower, places, -1), smoothings[n - 1], notes, bar)
            lower, places = keep[n - 1], np.cumsum(keep[n - 1]) - 1
    model.notes = notes
    return model


def _unigrams(words: list[str], counts: Counts, used: np.ndarray, how: Smoothing, unigrams: str, notes: list[str]) -> NgramModel:
    """The model of one order, in which every word is a unigram; <s> has a probability of zero."""
    c = np.zeros(len(words))
    c[counts.word] = used
    c[0] = 0
    seen = c > 0
    taking = _taking(1, c[seen], how, notes)
    left, _ = _discounted(1, c[seen], np.zeros(int(seen.sum()), np.int64), 1, len(words) - 1, how, taking)
    p = np.zeros(len(words))
    p[seen] = np.where(c[seen] >= (0 if how.by_text else how.min_count), left / c.sum(), 0.0)
    rest = max(1 - p.sum(), 0.0)
    others = ~seen if unigrams == "leftover" and not seen[1:].all() else np.ones(len(words), bool)
    others[0] = False
    p[others] += rest / others.sum()
    p[1:] /= p[1:].sum()
    with np.errstate(divide="ignore"):
        logprob = np.log(p)
    return NgramModel(words, [Order(np.zeros(len(words), np.int64), np.arange(len(words)), logprob, np.zeros(len(words)))])


def _with_order(model: NgramModel, counts: Counts, c: np.ndarray, keep: np.ndarray, places: np.ndarray, how: Smoothing,
                notes: list[str], bar: Progress) -> NgramModel:
    """The model with one order more; `places` are those of the counts' histories among its n-grams of the highest order, or -1."""
    n, num_contexts = model.order + 1, len(places)
    taking = _taking(n, c, how, notes)
    history = counts.history if (places == np.arange(num_contexts)).all() else places[counts.history]
    logprob, gamma = np.empty(len(c)), np.empty(num_contexts)
    for rows, contexts in blocks(counts.history, num_contexts):
        own_history, own_c, own_keep = counts.history[rows] - contexts.start, c[rows], keep[rows]
        seen, many = own_c > 0, contexts.stop - contexts.start
        totals, left = np.bincount(own_history, own_c, many), np.zeros(len(own_c))
        left[seen], gamma[contexts] = _discounted(n, own_c[seen], own_history[seen], many, len(model.words) - 1, how, taking)
        p = left / np.maximum(totals[own_history], 1e-300)
        if how.interpolate:
            below = model.look_up(model.suffix[model.base[n - 1] + history[rows][own_keep]], counts.word[rows][own_keep])[0]
            p[own_keep] += gamma[contexts][own_history[own_keep]] * np.exp(below)
        with np.errstate(divide="ignore"):
            logprob[rows] = np.log(p)
        bar.update(len(p))
    own = keep if how.interpolate else keep & (c > 0)
    size, context = len(model.orders[-1]), places >= 0
    dropped = np.zeros(size, bool)
    if not own.all():
        dropped[history[(history >= 0) & ~own]] = True  # histories that were left out have nothing behind them
    exact, anew = np.zeros(size), np.zeros(size, bool)
    exact[places[context]] = np.log(np.maximum(gamma[context], 1e-300))
    anew[places[context]] = not how.interpolate
    anew |= dropped

    def with_ngrams(which: np.ndarray, backoff: np.ndarray) -> NgramModel:
        if which.all():
            return model.with_order(backoff, Order(history, counts.word, logprob, np.zeros(len(history))))
        return model.with_order(backoff, Order(history[which], counts.word[which], logprob[which], np.zeros(int(which.sum()))))

    made = with_ngrams(own, exact)
    if anew.any():
        everywhere = [np.zeros(len(order), bool) for order in made.orders]
        everywhere[n - 2] = anew
        made = made.normalised(everywhere)
    if (keep & ~own).any():  # histories that Kneser-Ney does not count: they are as probable as backing off says
        logprob[own] = made.orders[-1].logprob
        others = keep & ~own
        logprob[others] = made.look_up(made.base[n - 1] + history[others], counts.word[others])[0]
        made = with_ngrams(keep, made.orders[-2].backoff)
    return made


def _taking(n: int, c: np.ndarray, how: Smoothing, notes: list[str]) -> np.ndarray:
    """What the counts of one order, all together, say of its discounts: Kneser-Ney's D(1) to D(3), Good-Turing's ratios; else nothing."""
    if how.method.endswith("kneser-ney"):
        return np.array(_kneser_ney(n, c, how.method == "kneser-ney", notes))
    return _good_turing(c, int(how.value)) if how.method == "good-turing" else np.empty(0)


def _discounted(n: int, c: np.ndarray, history: np.ndarray, size: int, num_words: int, how: Smoothing,
                taking: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What discounting leaves of some counts c > 0 of an order, all those of `size` contexts, and the mass gamma(h) that it takes of these.

    A context without counts has a mass of 1. `taking` is of the whole order.
    """
    totals = np.bincount(history, c, size)
    if how.method == "witten-bell":
        kinds = np.bincount(history, minlength=size)
        left = c * (totals / np.maximum(totals + kinds, 1))[history]
    elif how.method == "additive":
        left = (c + how.value) * (totals / np.maximum(totals + how.value * num_words, 1e-300))[history]
    elif how.method == "absolute":
        left = np.maximum(c - how.value, 0.0)
    elif how.method == "good-turing":
        left = c * taking[np.minimum(c, how.value + 1).astype(np.int64)]
    else:
        left = c - taking[np.minimum(c, 3).astype(np.int64) - 1]
    taken = 1 - np.bincount(history, left, size) / np.maximum(totals, 1e-300)
    if n > 1:  # a context that keeps all to itself gives up the mass of one more word, as in SRILM
        full = (taken < 1e-6) & (totals > 0)
        left *= np.where(full, totals / (totals + 1), 1.0)[history]
        taken = np.where(full, 1 / (totals + 1), taken)
    return left, np.where(totals > 0, np.maximum(taken, 0.0), 1.0)


def _good_turing(c: np.ndarray, most: int) -> np.ndarray:
    """The ratios d / c for counts of 0 to `most` and, at the end, for all greater ones."""
    of = np.bincount(np.minimum(c, most + 2).astype(np.int64), minlength=most + 3).astype(float)
    ratios = np.ones(most + 2)
    common = (most + 1) * of[most + 1] / of[1] if of[1] else 1.0
    for r in range(1, most + 1):
        if of[r] and common < 1:
            ratio = ((r + 1) * of[r + 1] / (r * of[r]) - common) / (1 - common)
            ratios[r] = ratio if 1e-6 < ratio <= 1 else 1.0
    return ratios


def _kneser_ney(n: int, c: np.ndarray, modified: bool, notes: list[str]) -> tuple[float, ...]:
    """The discounts D(1), D(2), D(3 and more) of one order."""
    of = np.bincount(np.minimum(c, 5).astype(np.int64), minlength=6)
    if of[1] and of[2]:
        y = float(of[1] / (of[1] + 2 * of[2]))
        if not modified:
            return y, y, y
        if of[3] and of[4]:
            found = tuple(float(k - (k + 1) * y * of[k + 1] / of[k]) for k in (1, 2, 3))
            if all(0 < d <= k for k, d in enumerate(found, 1)):
                return found
    fallback = FALLBACK_DISCOUNTS if modified else FALLBACK_DISCOUNTS[:1] * 3
    notes.append(f"the counts of {n}-grams are too few for {'modified ' * modified}Kneser-Ney's discounts; "
                 f"took {', '.join(f'{d:g}' for d in fallback)}")
    return fallback
