"""Perplexities of texts by n-gram models, reported as SRILM's `ngram -ppl` does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pykaldist.lm.arpa import LOG10
from pykaldist.lm.counts import numbers_of
from pykaldist.lm.model import NgramModel


@dataclass
class Scores:
    """What a model says of a text. Words outside the vocabulary are `oovs`; `zeros` have a probability of zero; neither counts."""

    sentences: int
    words: int
    oovs: int
    zeros: int
    logprob: float  # base 10

    @property
    def perplexity(self) -> float:
        """Of words and sentence ends; nan where there are none."""
        return self._perplexity(self.words - self.oovs - self.zeros + self.sentences)

    @property
    def perplexity_of_words(self) -> float:
        """As `perplexity`, the sum divided by the number of words alone (SRILM's ppl1)."""
        return self._perplexity(self.words - self.oovs - self.zeros)

    def _perplexity(self, count: int) -> float:
        return float(10 ** min(-self.logprob / count, 300.0)) if count > 0 else float("nan")

    def lines(self, what: str) -> str:
        """Two lines, in SRILM's form."""
        return (f"{what}{self.sentences} sentences, {self.words} words, {self.oovs} OOVs\n"
                f"{self.zeros} zeroprobs, logprob= {self.logprob:.7g} ppl= {_shown(self.perplexity)} "
                f"ppl1= {_shown(self.perplexity_of_words)}")


def _shown(value: float) -> str:
    return "undefined" if value != value else f"{value:.7g}"


@dataclass
class Scored:
    """The words of a text with their probabilities; one entry a word, and one a sentence's end."""

    numbers: np.ndarray  # -1 for words outside the vocabulary
    logprob: np.ndarray  # natural
    length: np.ndarray  # of the n-gram that was found
    sentence: np.ndarray

    def scores(self, sentence: int = -1) -> Scores:
        """The scores of one sentence, or of all (-1)."""
        rows = slice(None) if sentence < 0 else slice(*np.searchsorted(self.sentence, [sentence, sentence + 1]))
        numbers, logprob = self.numbers[rows], self.logprob[rows]
        ends, oov, zero = numbers == 1, numbers < 0, (numbers >= 0) & np.isneginf(logprob)
        return Scores(int(ends.sum()), int((~ends).sum()), int(oov.sum()), int(zero.sum()), float(logprob[~oov & ~zero].sum() / LOG10))


def score(model: NgramModel, sentences: Sequence[Sequence[str]], unk: int = -1) -> Scored:
    """Score sentences, with `unk` in the place of words outside the vocabulary; behind such a word (-1) the context begins anew."""
    text = numbers_of(sentences, model.index, unk)
    sentence = np.cumsum(text == 0) - 1
    starts = np.flatnonzero(text == 0)
    place = np.arange(len(text)) - starts[sentence] if len(text) else np.zeros(0, np.int64)
    by_place = np.argsort(place, kind="stable")
    bounds = np.searchsorted(place[by_place], np.arange(int(place.max(initial=0)) + 2))
    logprob, length, state = np.zeros(len(text)), np.zeros(len(text), np.int64), np.zeros(len(text), np.int64)
    first = np.zeros(1, np.int64)
    state[starts] = model.contexts(model.look_up(first, first)[1])
    for k in range(1, len(bounds) - 1):  # the k-th words of all sentences at once
        here = by_place[bounds[k]:bounds[k + 1]]
        logprob[here], nodes = model.look_up(state[here - 1], text[here])
        length[here], state[here] = model.length[np.maximum(nodes, 0)], model.contexts(nodes)
    keep = text != 0
    return Scored(text[keep], logprob[keep], length[keep], sentence[keep])


def details(model: NgramModel, sentences: Sequence[Sequence[str]], scored: Scored, each_word: bool) -> Iterator[str]:
    """The lines of `ngram -debug 1`, or `-debug 2` (`each_word`): sentences, their words with their probabilities, their scores."""
    at = 0
    for i, sentence in enumerate(sentences):
        yield " ".join(sentence)
        end = at
        while scored.numbers[end] != 1:
            end += 1
        names = [model.words[k] if k >= 0 else word for k, word in zip(scored.numbers[at:end].tolist(), _inner(sentence), strict=True)]
        for j in range(at, end + 1) if each_word else ():
            word, logprob, found = [*names, "</s>"][j - at], scored.logprob[j], int(scored.length[j])
            before = ["<s>", *names][: j - at + 1]
            context = before[-1] + " ..." if len(before) > 1 else before[-1]
            p = float(np.exp(logprob))
            kind = f"{found}gram" if scored.numbers[j] >= 0 else "OOV"
            yield f"\tp( {word} | {context} ) \t= [{kind}] {p:.7g} [ {'-inf' if p == 0 else f'{logprob / LOG10:.7g}'} ]"
        yield scored.scores(i).lines("") + "\n"
        at = end + 1


def _inner(sentence: Sequence[str]) -> Sequence[str]:
    """A sentence without <s> and </s> at its ends."""
    words = sentence[1:] if sentence[:1] == ["<s>"] else sentence
    return words[:-1] if words[-1:] == ["</s>"] else words
