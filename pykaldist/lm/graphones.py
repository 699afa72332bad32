"""Graphones: pairs of letters and the phones that they stand for, found by aligning the words of a lexicon with their pronunciations.

A word and its pronunciation are cut into graphones of one letter and up to two phones (none is a silent letter), or of two letters and one
phone; where a word is too short for its phones, of one letter and up to eight. A word's probability under the unigram model is the sum
over all ways of cutting it of the product of its graphones' probabilities. EM (Bisani & Ney, "Joint-sequence models for
grapheme-to-phoneme conversion", 2008, section 3) estimates them: with alpha(i, j) the sum over the ways to cut the first i letters and j
phones, and beta likewise for the rest, the expected count of a graphone q that ends at (i, j) is alpha before it times p(q) times
beta(i, j) / alpha at the end. The best way of cutting takes the greatest product, each graphone's logarithm weighted with the longer of its
sides, so that long graphones are not favoured for being few.

Words with as many letters and phones are computed together, all at once; the loops run over positions only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SHAPES = ((1, 0), (1, 1), (1, 2), (2, 1))  # letters, phones
_MOST = 8  # phones of a letter, where a word has too few
Entry = tuple[Sequence[str], Sequence[str]]


@dataclass
class Aligned:
    """The graphones of each word that could be aligned, as (letters, phones), and the numbers of the words that could not."""

    words: list[list[tuple[tuple[str, ...], tuple[str, ...]]]]
    left_out: list[int]
    logprobs: list[float]  # of a word, before each iteration: the mean over all words


class _Group:
    """The words of one number of letters and one of phones. `shapes`: for each, the number of the graphone that begins at each place."""

    def __init__(self, letters: np.ndarray, phones: np.ndarray, shapes: Sequence[tuple[int, int]], chunks: _Chunks) -> None:
        self.num_letters, self.num_phones = letters.shape[1], phones.shape[1]
        self.graphones = {}
        for a, b in shapes:
            if a <= self.num_letters and b <= self.num_phones:
                left, right = chunks.letters(letters, a), chunks.phones(phones, b)
                self.graphones[a, b] = left[:, :, None] * chunks.num_right + right[:, None, :]

    def forwards(self, p: dict[tuple[int, int], np.ndarray], best: bool = False) -> np.ndarray:
        """alpha (letters + 1, phones + 1, words): sums, or with `best` the greatest sum of logarithms."""
        words = len(next(iter(p.values())))
        alpha = np.full((self.num_letters + 1, self.num_phones + 1, words), -np.inf if best else 0.0)
        alpha[0, 0] = 0.0 if best else 1.0
        for i in range(self.num_letters + 1):
            for j in range(self.num_phones + 1):
                for (a, b), one in p.items():
                    if a <= i and b <= j:
                        before, value = alpha[i - a, j - b], one[:, i - a, j - b]
                        alpha[i, j] = np.maximum(alpha[i, j], before + value) if best else alpha[i, j] + before * value
        return alpha

    def backwards(self, p: dict[tuple[int, int], np.ndarray]) -> np.ndarray:
        """beta, likewise."""
        beta = np.zeros((self.num_letters + 1, self.num_phones + 1, len(next(iter(p.values())))))
        beta[-1, -1] = 1.0
        for i in range(self.num_letters, -1, -1):
            for j in range(self.num_phones, -1, -1):
                for (a, b), one in p.items():
                    if i + a <= self.num_letters and j + b <= self.num_phones:
                        beta[i, j] += one[:, i, j] * beta[i + a, j + b]
        return beta

    def of(self, table: np.ndarray) -> dict[tuple[int, int], np.ndarray]:
        """The entries of a table for the graphones at each place."""
        return {shape: table[numbers] for shape, numbers in self.graphones.items()}


class _Chunks:
    """Numbers of the sequences of letters and of phones that graphones may have; 0 is no phone."""

    def __init__(self) -> None:
        self.left: dict[tuple[int, ...], int] = {}
        self.right: dict[tuple[int, ...], int] = {(): 0}

    @property
    def num_right(self) -> int:
        return len(self.right)

    def learn(self, letters: np.ndarray, phones: np.ndarray, shapes: Sequence[tuple[int, int]]) -> None:
        """Enter the chunks of a group's words."""
        for a in {a for a, _ in shapes if a <= letters.shape[1]}:
            for row in np.unique(_windows(letters, a).reshape(-1, a), axis=0).tolist():
                self.left.setdefault(tuple(row), len(self.left))
        for b in {b for _, b in shapes if 0 < b <= phones.shape[1]}:
            for row in np.unique(_windows(phones, b).reshape(-1, b), axis=0).tolist():
                self.right.setdefault(tuple(row), len(self.right))

    def letters(self, letters: np.ndarray, a: int) -> np.ndarray:
        """The chunk of `a` letters that begins at each place: (words, places)."""
        return self._numbers(letters, a, self.left)

    def phones(self, phones: np.ndarray, b: int) -> np.ndarray:
        """The chunk of `b` phones that begins at each place; for no phone, there is one place more."""
        return np.zeros((len(phones), phones.shape[1] + 1), np.int64) if b == 0 else self._numbers(phones, b, self.right)

    @staticmethod
    def _numbers(rows: np.ndarray, size: int, known: dict[tuple[int, ...], int]) -> np.ndarray:
        windows = _windows(rows, size)
        unique, inverse = np.unique(windows.reshape(-1, size), axis=0, return_inverse=True)
        return np.array([known[tuple(row)] for row in unique.tolist()])[inverse.ravel()].reshape(windows.shape[:2])


def _windows(rows: np.ndarray, size: int) -> np.ndarray:
    return np.lib.stride_tricks.sliding_window_view(rows, size, axis=1)


def align(entries: Sequence[Entry], iterations: int = 10) -> Aligned:
    """Align the letters of words with the phones of their pronunciations, by EM and the best way of cutting.

    Words without letters or phones, or with more than eight phones a letter, are left out.
    """
    letter_of = {letter: i for i, letter in enumerate(sorted({letter for letters, _ in entries for letter in letters}))}
    phone_of = {phone: i for i, phone in enumerate(sorted({phone for _, phones in entries for phone in phones}))}
    by_size: dict[tuple[int, int], list[int]] = {}
    left_out = []
    for i, (letters, phones) in enumerate(entries):
        if letters and phones and len(phones) <= _MOST * len(letters):
            by_size.setdefault((len(letters), len(phones)), []).append(i)
        else:
            left_out.append(i)
    chunks, parts = _Chunks(), []
    for (num_letters, num_phones), members in sorted(by_size.items()):
        shapes = SHAPES if num_phones <= 2 * num_letters else (*SHAPES, *((1, b) for b in range(3, _MOST + 1)))
        arrays = (np.array([[letter_of[letter] for letter in entries[i][0]] for i in members]),
                  np.array([[phone_of[phone] for phone in entries[i][1]] for i in members]))
        chunks.learn(*arrays, shapes)
        parts.append((members, arrays, shapes))
    groups = [(members, _Group(*arrays, shapes, chunks)) for members, arrays, shapes in parts]
    size = len(chunks.left) * len(chunks.right)
    table, logprobs = np.ones(size), []
    for _ in range(iterations):
        counts, total, words = np.zeros(size), 0.0, 0
        for _, group in groups:
            p = group.of(table)
            alpha, beta = group.forwards(p), group.backwards(p)
            ends = alpha[-1, -1]
            fine = ends > 0
            total, words = total + float(np.log(ends[fine]).sum()), words + int(fine.sum())
            share = np.where(fine, 1 / np.where(fine, ends, 1.0), 0.0)
            for (a, b), one in p.items():
                i, j = one.shape[1:]
                expected = alpha[:i, :j] * beta[a:a + i, b:b + j] * share
                counts += np.bincount(group.graphones[a, b].ravel(), (one * expected.transpose(2, 0, 1)).ravel(), size)
        table = counts / max(counts.sum(), 1e-300)
        logprobs.append(total / max(words, 1))
    return _best(entries, groups, table, left_out, logprobs)


def _best(entries: Sequence[Entry], groups: list[tuple[list[int], _Group]], table: np.ndarray, left_out: list[int],
          logprobs: list[float]) -> Aligned:
    """The best way of cutting each word."""
    with np.errstate(divide="ignore"):
        scores = np.log(table)
    found: dict[int, list[tuple[tuple[str, ...], tuple[str, ...]]]] = {}
    for members, group in groups:
        p = {(a, b): one * max(a, b) for (a, b), one in group.of(scores).items()}
        alpha = group.forwards(p, best=True)
        for k, member in enumerate(members):
            letters, phones = entries[member]
            i, j, cut = len(letters), len(phones), []
            while (i or j) and np.isfinite(alpha[i, j, k]):
                a, b = max((shape for shape in p if shape[0] <= i and shape[1] <= j), key=lambda shape: (
                    alpha[i - shape[0], j - shape[1], k] + p[shape][k, i - shape[0], j - shape[1]]))
                cut.append((tuple(letters[i - a:i]), tuple(phones[j - b:j])))
                i, j = i - a, j - b
            if i or j:
                left_out.append(member)
            else:
                found[member] = cut[::-1]
    return Aligned([found[i] for i in sorted(found)], sorted(left_out), logprobs)
