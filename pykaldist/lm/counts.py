"""Counts of the n-grams of a text, as sorted arrays.

The text is one array of word numbers, each sentence between <s> (0) and </s> (1); a word outside the vocabulary is -1, and no n-gram
contains it. The n-grams that end at each place are numbered by sorting the pairs (number of the history that ends before it, word).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from pykaldist.lm.model import BOS, EOS


@dataclass
class Counts:
    """The n-grams of one order: history's number among those one shorter, last word, count, and Kneser-Ney's count.

    Kneser-Ney's is the number of different words before the n-gram; the count itself for n-grams before which there is nothing (they
    begin with <s>, or with the word where histories end), and in the highest order. It may be zero.
    """

    history: np.ndarray
    word: np.ndarray
    count: np.ndarray
    kneser_ney: np.ndarray

    def __len__(self) -> int:
        return len(self.word)


def numbers_of(sentences: Iterable[Iterable[str]], index: dict[str, int], unk: int = -1) -> np.ndarray:
    """The text as word numbers, <s> and </s> around each sentence; words outside `index` are `unk`.

    <s> at the head of a sentence and </s> at its end may be there already; elsewhere they are words outside the vocabulary.
    """
    known = {word: i for word, i in index.items() if i > 1}
    numbers: list[int] = []
    for sentence in sentences:
        words = list(sentence)
        words = words[words[:1] == [BOS]:]
        if words[-1:] == [EOS]:
            words.pop()
        numbers.append(0)
        numbers += [known.get(word, unk) for word in words]
        numbers.append(1)
    return np.array(numbers, np.int64)


def count_ngrams(text: np.ndarray, num_words: int, order: int, ends_history: int = -2) -> list[Counts]:
    """The counts of the n-grams of orders 1 to `order`, [n-1]; <s> is a unigram with no count, since it is not predicted.

    `ends_history`: a word before which a history does not reach (pocolm's --limit-unk-history). An order that no sentence is long enough
    for has no n-grams, and the orders from there on are left out.
    """
    found: list[Counts] = []
    unigrams = np.bincount(text[text >= 0], minlength=num_words)
    unigrams[0] = 0
    words = np.flatnonzero(unigrams)
    words = np.concatenate([[0], words])  # <s> is a history
    found.append(Counts(np.zeros(len(words), np.int64), words, unigrams[words], unigrams[words].copy()))
    at = np.full(num_words, -1)
    at[words] = np.arange(len(words))
    ends_here = np.where(text >= 0, at[text], -1)  # the unigram that ends at each place
    for n in range(2, order + 1):
        before = np.concatenate([[-1], ends_here[:-1]])
        valid = (before >= 0) & (text > 0)
        if n > 2:  # the word before the last must not end the history
            valid[1:] &= text[:-1] != ends_history
        keys = before[valid] * num_words + text[valid]
        if not len(keys):
            break
        unique, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
        suffix_of = np.zeros(len(unique), np.int64)
        suffix_of[inverse] = ends_here[valid]  # the n-gram without its first word ends there, too
        lower = found[-1]
        words_before = np.bincount(suffix_of, minlength=len(lower))
        lower.kneser_ney = np.where(_nothing_before(found, ends_history), lower.count, words_before)
        found.append(Counts(unique // num_words, unique % num_words, counts, counts.copy()))
        ends_here = np.full(len(text), -1)
        ends_here[valid] = inverse
    return found


def _nothing_before(found: list[Counts], ends_history: int) -> np.ndarray:
    """Which n-grams of the highest order so far begin with <s>, or, having two words and more, with the word that ends histories."""
    first = found[0].word
    for counts in found[1:]:
        first = first[counts.history]
    return (first == 0) | ((first == ends_history) & (len(found) > 1))
