"""Counts of the n-grams of a text, as sorted arrays.

The text is one array of word numbers, each sentence between <s> (0) and </s> (1); a word outside the vocabulary is -1, and no n-gram
contains it. The n-grams that end at each place are numbered by sorting the pairs (number of the history that ends before it, word): blocks
of places first, whose sorted pairs are then merged, so that beside the text and the n-grams little memory is taken.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from pykaldist.lm.model import BOS, EOS
from pykaldist.progress import Progress

BLOCK = 1 << 22  # places of the text, or n-grams, that are sorted at once


@dataclass
class Counts:
    """The n-grams of one order: history's number among those one shorter, last word, count, and Kneser-Ney's count.

    Kneser-Ney's is the number of different words before the n-gram; the count itself for n-grams before which there is nothing (they
    begin with <s>, or with the word where histories end), and in the highest order. It may be zero.
    """

    history: np.ndarray  # int64
    word: np.ndarray  # int32
    count: np.ndarray
    kneser_ney: np.ndarray

    def __len__(self) -> int:
        return len(self.word)


def numbers_of(sentences: Iterable[Iterable[str]], index: dict[str, int], unk: int = -1, strange: set[str] | None = None) -> np.ndarray:
    """The text as word numbers (int32), <s> and </s> around each sentence; words outside `index` are `unk`, and are put into `strange`.

    <s> at the head of a sentence and </s> at its end may be there already; elsewhere they are words outside the vocabulary.
    """
    known = {word: i for word, i in index.items() if i > 1}
    numbers = array("i")
    for sentence in sentences:
        words = list(sentence)
        words = words[words[:1] == [BOS]:]
        if words[-1:] == [EOS]:
            words.pop()
        row = list(map(known.get, words, repeat(unk)))
        if strange is not None and unk in row:
            strange.update(word for word in words if word not in known)
        numbers.extend((0, *row, 1))
    return np.array(numbers, np.int32)


def count_ngrams(text: np.ndarray, num_words: int, order: int, ends_history: int = -2) -> list[Counts]:
    """The counts of the n-grams of orders 1 to `order`, [n-1]; <s> is a unigram with no count, since it is not predicted.

    `ends_history`: a word before which a history does not reach (pocolm's --limit-unk-history). An order that no sentence is long enough
    for has no n-grams, and the orders from there on are left out.
    """
    found: list[Counts] = []
    unigrams = np.zeros(num_words, np.int64)
    for places in _blocks(len(text)):
        here = text[places]
        unigrams += np.bincount(here[here >= 0], minlength=num_words)
    unigrams[0] = 0
    words = np.concatenate([[0], np.flatnonzero(unigrams)])  # <s> is a history
    found.append(Counts(np.zeros(len(words), np.int64), words.astype(np.int32), unigrams[words], unigrams[words].copy()))
    at = np.full(num_words + 1, -1, np.int32)  # the last is for -1, a word outside the vocabulary
    at[words] = np.arange(len(words))
    ends_here = at[text]  # the unigram that ends at each place
    blocks = list(_blocks(len(text)))
    with Progress("counting n-grams", 2 * (order - 1) * len(blocks), "block") as bar:
        for n in range(2, order + 1):
            runs: list[tuple[np.ndarray, np.ndarray]] = []  # of each block: its pairs, sorted, and their counts
            inverses: list[np.ndarray] = []
            for places in blocks:
                before, here, valid = _pairs(text, ends_here, places, n, ends_history)
                pairs, inverse, counts = np.unique(before[valid] * num_words + here[valid], return_inverse=True, return_counts=True)
                runs.append((pairs, counts.astype(np.int32)))
                inverses.append(inverse.astype(np.int32))
                bar.update()
            pairs, counts = _merged(runs)
            if not len(pairs):
                break
            lower, suffix_of = found[-1], np.zeros(len(pairs), np.int32)
            longer_ends = np.full(len(text), -1, np.int32)
            for places, (own, _), inverse in zip(blocks, runs, inverses, strict=True):
                valid = _pairs(text, ends_here, places, n, ends_history)[2]
                number = np.searchsorted(pairs, own)[inverse]
                suffix_of[number] = ends_here[places][valid]  # the n-gram without its first word ends there, too
                longer_ends[places][valid] = number
                bar.update()
            words_before = np.bincount(suffix_of, minlength=len(lower))
            lower.kneser_ney = np.where(_nothing_before(found, ends_history), lower.count, words_before)
            history = pairs // num_words
            pairs -= history * num_words
            found.append(Counts(history, pairs.astype(np.int32), counts, counts))
            ends_here = longer_ends
    return found


def _blocks(length: int) -> Iterator[slice]:
    return (slice(first, min(first + BLOCK, length)) for first in range(0, length, BLOCK))


def _pairs(text: np.ndarray, ends_here: np.ndarray, places: slice, n: int, ends_history: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of a block of places: the history that ends before each, the word there, and whether an n-gram of order n ends there."""
    here = text[places]
    before, word_before = np.full(len(here), -1, np.int64), np.full(len(here), -1, np.int32)
    begin = 1 if places.start == 0 else 0
    before[begin:] = ends_here[places.start + begin - 1:places.stop - 1]
    word_before[begin:] = text[places.start + begin - 1:places.stop - 1]
    valid = (before >= 0) & (here > 0)
    if n > 2:  # the word before the last must not end the history
        valid &= word_before != ends_history
    return before, here, valid


def _merged(runs: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of sorted runs, sorted, and the sums of their counts; a range of pairs after the other, each of about a block."""
    if len(runs) <= 1:
        return runs[0] if runs else (np.empty(0, np.int64), np.empty(0, np.int32))
    step = max(BLOCK // (8 * len(runs)), 1)
    sample = np.sort(np.concatenate([pairs[::step] for pairs, _ in runs]))
    bounds = np.unique(sample[max(BLOCK // step, 1)::max(BLOCK // step, 1)])
    cuts = [[0, *np.searchsorted(pairs, bounds).tolist(), len(pairs)] for pairs, _ in runs]
    parts: list[tuple[np.ndarray, np.ndarray]] = []
    for k in range(len(bounds) + 1):
        pairs = np.concatenate([run[0][cut[k]:cut[k + 1]] for run, cut in zip(runs, cuts, strict=True)])
        counts = np.concatenate([run[1][cut[k]:cut[k + 1]] for run, cut in zip(runs, cuts, strict=True)])
        if len(pairs):
            order = np.argsort(pairs)
            pairs = pairs[order]
            first = np.flatnonzero(np.concatenate([[True], pairs[1:] != pairs[:-1]]))
            parts.append((pairs[first], np.add.reduceat(counts[order], first, dtype=np.int32)))
    return (np.concatenate([runs[0][0][:0], *(pairs for pairs, _ in parts)]),
            np.concatenate([runs[0][1][:0], *(counts for _, counts in parts)]))


def _nothing_before(found: list[Counts], ends_history: int) -> np.ndarray:
    """Which n-grams of the highest order so far begin with <s>, or, having two words and more, with the word that ends histories."""
    first = found[0].word
    for counts in found[1:]:
        first = first[counts.history]
    return (first == 0) | ((first == ends_history) & (len(found) > 1))
