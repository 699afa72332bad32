"""Back-off n-gram language models: interpolated modified Kneser-Ney, or Witten-Bell, written as ARPA.

With h a context, h' the context without its first word, V the vocabulary with </s> and without <s>, both methods interpolate,

    p(w | h) = (c(hw) - D(c(hw))) / c(h.) + gamma(h) p(w | h'),      p(w | no context) likewise with p(w | h') = 1 / |V|,

so that p sums to one over V where gamma(h) is the mass that the discounts took. As a back-off model: an n-gram seen has this
p(w | h), one not seen gamma(h) p(w | h'), for its first term is zero. gamma(h) is the ARPA file's back-off weight.

Modified Kneser-Ney (Chen & Goodman, "An empirical study of smoothing techniques for language modeling", 1998, section 3): c is the
count in the highest order and for n-grams that start with <s>, else the number of different words seen before the n-gram. With n_k
the number of n-grams of that order whose c is k, and Y = n_1 / (n_1 + 2 n_2),

    D(k) = k - (k + 1) Y n_{k+1} / n_k   for k = 1, 2, 3,   D(c > 3) = D(3),   gamma(h) = sum_w D(c(hw)) / c(h.).

A small text may have n_k = 0 or discounts outside of (0, k]; that order then takes 0.5, 1 and 1.5 (KenLM's fall-back), and
`NgramModel.notes` says so. Witten-Bell: c is the count, and with T(h) different words seen after h

    p(w | h) = (c(hw) + T(h) p(w | h')) / (c(h.) + T(h)),    gamma(h) = T(h) / (c(h.) + T(h)).
"""

from __future__ import annotations

import gzip
import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pykaldist.errors import UserError
from pykaldist.io.atomic import atomic_open

BOS, EOS = "<s>", "</s>"
FALLBACK_DISCOUNTS = (0.5, 1.0, 1.5)
SMOOTHINGS = ("kneser-ney", "witten-bell")

Ngram = tuple[str, ...]


@dataclass
class NgramModel:
    """An n-gram model: probabilities and back-off weights of the n-grams seen, as the ARPA format has them."""

    vocabulary: list[str]  # with </s>, without <s>
    probabilities: list[dict[Ngram, float]]  # [n-1]: n-gram -> p(last word | those before)
    backoffs: dict[Ngram, float]  # context -> gamma; 1 where absent
    notes: list[str] = field(default_factory=list)

    @property
    def order(self) -> int:
        return len(self.probabilities)

    def probability(self, word: str, context: Sequence[str]) -> float:
        """The probability p(word | context); more context than the order uses is dropped.

        Raises KeyError for a word outside the vocabulary.
        """
        history = tuple(context)[max(0, len(context) - self.order + 1) :]
        weight = 1.0
        while (*history, word) not in self.probabilities[len(history)]:
            weight *= self.backoffs.get(history, 1.0)
            if not history:
                raise KeyError(word)
            history = history[1:]
        ngram = (*history, word)
        return weight * self.probabilities[len(history)][ngram]

    def worst_sum(self) -> float:
        """The greatest deviation from one, over all contexts, of a context's probabilities summed over the vocabulary."""
        worst = abs(1 - math.fsum(self.probabilities[0][(word,)] for word in self.vocabulary))
        for ngrams in self.probabilities[1:]:
            seen: dict[Ngram, float] = defaultdict(float)
            below: dict[Ngram, float] = defaultdict(float)
            for ngram, p in ngrams.items():
                seen[ngram[:-1]] += p
                below[ngram[:-1]] += self.probability(ngram[-1], ngram[1:-1])
            for history, total in seen.items():
                worst = max(worst, abs(1 - total - self.backoffs.get(history, 1.0) * (1 - below[history])))
        return worst

    def write_arpa(self, path: str | os.PathLike[str]) -> None:
        """Write the model; gzipped where the name ends in `.gz`."""
        lines = ["\\data\\"]
        sections = [dict(p) for p in self.probabilities]
        sections[0] = {(BOS,): 0.0, **sections[0]}
        lines += [f"ngram {n}={len(section)}" for n, section in enumerate(sections, 1)]
        for n, section in enumerate(sections, 1):
            lines += ["", f"\\{n}-grams:"]
            for ngram in sorted(section):
                p = section[ngram]
                backoff = self.backoffs.get(ngram)
                lines.append(f"{math.log10(p) if p > 0 else -99:.7g}\t{' '.join(ngram)}"
                             + (f"\t{math.log10(backoff):.7g}" if backoff is not None else ""))
        lines += ["", "\\end\\", ""]
        with atomic_open(path, "wb") as stream:
            content = "\n".join(lines).encode("utf-8")
            stream.write(gzip.compress(content, mtime=0) if str(path).endswith(".gz") else content)


def estimate(sentences: Iterable[Sequence[str]], vocabulary: Iterable[str], order: int = 3, smoothing: str = "kneser-ney") -> NgramModel:
    """Estimate an n-gram model of `sentences` over a closed vocabulary (</s> is added, <s> is not predicted).

    Raises UserError for an empty text, a word outside the vocabulary, or <s> or </s> inside a sentence. An order that no sentence is
    long enough for is lowered, and `notes` says so.
    """
    if order < 1 or smoothing not in SMOOTHINGS:
        raise UserError(f"expected an order of at least 1 and a smoothing of {' or '.join(SMOOTHINGS)}, found {order} and {smoothing!r}.")
    words = set(vocabulary) - {BOS, EOS}
    text = [tuple(sentence) for sentence in sentences if sentence]
    if not text:
        raise UserError("the text has no words to estimate a language model from.")
    for sentence in text:
        for word in sentence:
            if word not in words:
                raise UserError(f"word {word} of the text is not in the vocabulary; add it to the lexicon or give --oov.")
    notes = []
    longest = max(map(len, text)) + 2
    if order > longest:
        notes.append(f"order {order} lowered to {longest}, for no sentence is longer")
        order = longest
    counts = _counts([(BOS, *sentence, EOS) for sentence in text], order, kneser_ney=smoothing == "kneser-ney")
    model = NgramModel([*sorted(words), EOS], [], {}, notes)
    for n, ngrams in enumerate(counts, 1):
        if smoothing == "kneser-ney":
            _add_kneser_ney(model, n, ngrams)
        else:
            _add_witten_bell(model, ngrams)
    return model


def _counts(sentences: list[Ngram], order: int, kneser_ney: bool) -> list[Counter[Ngram]]:
    """The counts of n-grams by order, [n-1]: n-gram -> its count, or Kneser-Ney's number of words before it.

    <s> alone is no unigram.
    """
    raw: list[Counter[Ngram]] = [Counter() for _ in range(order)]
    for sentence in sentences:
        for n in range(1, order + 1):
            raw[n - 1].update(sentence[i : i + n] for i in range(len(sentence) - n + 1))
    counts = raw
    if kneser_ney:
        counts = [Counter(ngram[1:] for ngram in higher) for higher in raw[1:]] + [raw[-1]]
        for n in range(order - 1):
            counts[n].update({ngram: c for ngram, c in raw[n].items() if ngram[0] == BOS})
    del counts[0][(BOS,)]
    return counts


def _lower(model: NgramModel, ngram: Ngram) -> float:
    """The lower-order probability p(w | h') for the n-gram hw."""
    return 1 / len(model.vocabulary) if len(ngram) == 1 else model.probability(ngram[-1], ngram[1:-1])


def _add_kneser_ney(model: NgramModel, n: int, ngrams: Counter[Ngram]) -> None:
    discounts = _discounts(n, ngrams, model.notes)
    totals: dict[Ngram, int] = defaultdict(int)
    taken: dict[Ngram, float] = defaultdict(float)
    for ngram, c in ngrams.items():
        totals[ngram[:-1]] += c
        taken[ngram[:-1]] += discounts[min(c, 3) - 1]
    gammas = {history: taken[history] / total for history, total in totals.items()}
    _add_order(model, {ngram: (c - discounts[min(c, 3) - 1]) / totals[ngram[:-1]] for ngram, c in ngrams.items()}, gammas)


def _discounts(n: int, ngrams: Counter[Ngram], notes: list[str]) -> tuple[float, ...]:
    """The discounts D(1), D(2), D(3 and more) of one order."""
    of = Counter(ngrams.values())
    if all(of[k] for k in (1, 2, 3, 4)):
        y = of[1] / (of[1] + 2 * of[2])
        found = tuple(k - (k + 1) * y * of[k + 1] / of[k] for k in (1, 2, 3))
        if all(0 < d <= k for k, d in enumerate(found, 1)):
            return found
    notes.append(f"the counts of {n}-grams are too few for modified Kneser-Ney's discounts; "
                 f"took {', '.join(f'{d:g}' for d in FALLBACK_DISCOUNTS)}")
    return FALLBACK_DISCOUNTS


def _add_witten_bell(model: NgramModel, ngrams: Counter[Ngram]) -> None:
    totals: dict[Ngram, int] = defaultdict(int)
    kinds: dict[Ngram, int] = defaultdict(int)
    for ngram, c in ngrams.items():
        totals[ngram[:-1]] += c
        kinds[ngram[:-1]] += 1
    gammas = {history: kinds[history] / (total + kinds[history]) for history, total in totals.items()}
    _add_order(model, {g: c / (totals[g[:-1]] + kinds[g[:-1]]) for g, c in ngrams.items()}, gammas)


def _add_order(model: NgramModel, discounted: dict[Ngram, float], gammas: dict[Ngram, float]) -> None:
    """Add one more order of n-grams, interpolated with those below it; unigrams take in the whole vocabulary."""
    if () in gammas:
        discounted = {(word,): discounted.get((word,), 0.0) for word in model.vocabulary}
    order = {ngram: p + gammas[ngram[:-1]] * _lower(model, ngram) for ngram, p in discounted.items()}
    model.probabilities.append(order)
    model.backoffs.update((history, gamma) for history, gamma in gammas.items() if history)
