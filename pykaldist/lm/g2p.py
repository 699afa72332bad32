"""Letter-to-sound models: n-grams of graphones (`graphones.py`), and the pronunciations that they give to words.

A word of the n-gram model is a graphone, written `p|h}F`: letters, `}`, phones; `_` is no phone. A pronunciation's probability is the sum
over the ways of cutting that the search has kept, normalised over all pronunciations of the word that it has kept. The search goes over all
words at once, letter by letter: what ends at a letter is extended by the graphones of the next one and of the next two, and of each word's
hypotheses the best stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pykaldist.errors import UserError
from pykaldist.lm.counts import count_ngrams, numbers_of
from pykaldist.lm.graphones import Entry, align
from pykaldist.lm.model import EOS, NgramModel
from pykaldist.lm.smoothing import Smoothing, of_counts, word_list

BEAM = 40  # hypotheses of a word
_MARGIN = 12.0  # natural logarithm, behind the best of a word
_BLOCK = 400  # words that are searched at once
Pronunciation = tuple[str, ...]


def token(letters: Sequence[str], phones: Sequence[str]) -> str:
    """A graphone as a word of the n-gram model."""
    return f"{'|'.join(letters)}}}{'|'.join(phones) or '_'}"


def of_token(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The letters and phones of a graphone. Raises UserError for other words."""
    letters, brace, phones = text.partition("}")
    if not (letters and brace and phones):
        raise UserError(f"{text!r} is no graphone, such as 'p|h}}F'; make the model with g2p.py or phonetisaurus-align.")
    return tuple(letters.split("|")), () if phones == "_" else tuple(phones.split("|"))


def read_lexicon(text: str, name: str) -> list[Entry]:
    """The words, as letters, and pronunciations of a lexicon: a word and its phones on each line.

    Raises UserError, with the line, for a word without phones.
    """
    entries: list[Entry] = []
    for number, line in enumerate(text.split("\n"), 1):
        word, *phones = line.split() or [""]
        if word and not phones:
            raise UserError(f"{name}, line {number}: expected a word and its phones, found {word!r} alone.")
        if word:
            entries.append((list(word), phones))
    if not entries:
        raise UserError(f"{name} has no words.")
    return entries


def writable(entry: Entry) -> bool:
    """Whether the letters and phones of a lexicon's entry can be written as graphones."""
    return not {"|", "}"}.intersection(entry[0]) and not any("|" in phone or phone == "_" for phone in entry[1])


def sequences(entries: Sequence[Entry], iterations: int = 10) -> tuple[list[list[str]], int]:
    """The words of a lexicon as graphones, and how many of them cannot be aligned or written."""
    fine = [entry for entry in entries if writable(entry)]
    aligned = align(fine, iterations)
    return [[token(*graphone) for graphone in word] for word in aligned.words], len(entries) - len(aligned.words)


def train(tokens: Sequence[Sequence[str]], order: int) -> NgramModel:
    """An interpolated modified Kneser-Ney model of words' graphones. Raises UserError where there are none."""
    if not tokens:
        raise UserError("no word of the lexicon can be aligned with its phones; are there lines of a word and its phones?")
    words = word_list(graphone for word in tokens for graphone in word)
    numbers = numbers_of(tokens, {word: i for i, word in enumerate(words)})
    return of_counts(words, count_ngrams(numbers, len(words), order), [Smoothing()] * order)


@dataclass
class _Hypotheses:
    """Ways into words that have come to one letter: the word, the model's state, the log-probability, the entry of the history."""

    word: np.ndarray
    state: np.ndarray
    logprob: np.ndarray
    history: np.ndarray

    def __getitem__(self, rows: np.ndarray) -> _Hypotheses:
        return _Hypotheses(self.word[rows], self.state[rows], self.logprob[rows], self.history[rows])

    @classmethod
    def all_of(cls, parts: Sequence[_Hypotheses]) -> _Hypotheses:
        """The hypotheses of several together."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("word", "state", "logprob", "history")))

    def best(self, beam: int) -> _Hypotheses:
        """The best of each word."""
        order = np.lexsort((-self.logprob, self.word))
        word, logprob = self.word[order], self.logprob[order]
        first = np.flatnonzero(np.diff(word, prepend=-1))
        of = np.cumsum(np.diff(word, prepend=-1) != 0) - 1
        keep = (np.arange(len(word)) - first[of] < beam) & (logprob > logprob[first[of]] - _MARGIN)
        return self[order[keep]]


class LetterToSound:
    """A model of graphones, ready to pronounce words."""

    def __init__(self, model: NgramModel) -> None:
        self.model = model
        graphones = [of_token(word) for word in model.words[2:]]
        self.phones = [(), (), *(phones for _, phones in graphones)]
        self.longest = max(len(letters) for letters, _ in graphones)
        known: dict[tuple[str, ...], list[int]] = {}
        for number, (letters, _) in enumerate(graphones, 2):
            known.setdefault(letters, []).append(number)
        self._chunk = {letters: i for i, letters in enumerate(known)}
        self._sizes = np.array([len(numbers) for numbers in known.values()])
        self._starts = np.concatenate([[0], np.cumsum(self._sizes)])
        self._graphones = np.concatenate([np.array(numbers) for numbers in known.values()])

    def pronounce(self, words: Sequence[Sequence[str]], beam: int = BEAM) -> list[list[tuple[float, Pronunciation]]]:
        """The pronunciations of words (their letters), the most probable first, with their probabilities; none for strange letters."""
        found: list[list[tuple[float, Pronunciation]]] = []
        for start in range(0, len(words), _BLOCK):
            found += self._block(words[start:start + _BLOCK], beam)
        return found

    def _block(self, words: Sequence[Sequence[str]], beam: int) -> list[list[tuple[float, Pronunciation]]]:
        lengths = np.array([len(word) for word in words])
        longest = int(lengths.max(initial=0))
        chunks = np.full((self.longest + 1, len(words), longest + 1), -1)
        for k, word in enumerate(words):
            for size in range(1, self.longest + 1):
                for i in range(len(word) - size + 1):
                    chunks[size, k, i] = self._chunk.get(tuple(word[i:i + size]), -1)
        begin = self.model.contexts(self.model.look_up(np.zeros(1, np.int64), np.zeros(1, np.int64))[1])
        inside = np.flatnonzero(lengths > 0)
        arrived: list[list[_Hypotheses]] = [[] for _ in range(longest + 1)]
        arrived[0].append(_Hypotheses(inside, np.repeat(begin, len(inside)), np.zeros(len(inside)), np.full(len(inside), -1)))
        parents, taken, entries = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], 0
        ended: list[_Hypotheses] = []
        for i in range(longest + 1):
            if not arrived[i]:
                continue
            here = _Hypotheses.all_of(arrived[i]).best(beam)
            at_end = lengths[here.word] == i
            ended.append(here[np.flatnonzero(at_end)])
            here = here[np.flatnonzero(~at_end)]
            for size in range(1, min(self.longest, longest - i) + 1):
                chunk = chunks[size, here.word, i]
                rows = np.flatnonzero(chunk >= 0)
                if not len(rows):
                    continue
                counts = self._sizes[chunk[rows]]
                rows, within = np.repeat(rows, counts), np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
                graphone = self._graphones[self._starts[chunk[rows]] + within]
                logprob, nodes = self.model.look_up(here.state[rows], graphone)
                arrived[i + size].append(_Hypotheses(here.word[rows], self.model.contexts(nodes), here.logprob[rows] + logprob,
                                                     entries + np.arange(len(rows))))
                parents.append(here.history[rows])
                taken.append(graphone)
                entries += len(rows)
        at_ends = _Hypotheses.all_of(ended) if ended else None
        return self._pronunciations(len(words), at_ends, np.concatenate(parents), np.concatenate(taken))

    def _pronunciations(self, num_words: int, ended: _Hypotheses | None, parents: np.ndarray,
                        taken: np.ndarray) -> list[list[tuple[float, Pronunciation]]]:
        """The pronunciations at the ends of words, those that are alike added."""
        sums: list[dict[Pronunciation, float]] = [{} for _ in range(num_words)]
        if ended is not None and len(ended.word):
            ended.logprob = ended.logprob + self.model.look_up(ended.state, np.full(len(ended.state), self.model.index[EOS]))[0]
            for word, logprob, entry in zip(ended.word.tolist(), ended.logprob.tolist(), ended.history.tolist(), strict=True):
                graphones = []
                while entry >= 0:
                    graphones.append(taken[entry])
                    entry = parents[entry]
                phones = tuple(phone for graphone in reversed(graphones) for phone in self.phones[graphone])
                sums[word][phones] = float(np.logaddexp(sums[word].get(phones, -np.inf), logprob))
        found = []
        for one in sums:
            one.pop((), None)  # a word has a phone
            total = float(np.logaddexp.reduce(list(one.values()))) if one else 0.0
            probabilities = [(float(np.exp(logprob - total)), phones) for phones, logprob in one.items()]
            found.append(sorted(probabilities, key=lambda item: (-item[0], item[1])))
        return found


def errors(found: Sequence[Sequence[tuple[float, Pronunciation]]], references: Sequence[Sequence[Sequence[str]]]) -> tuple[int, int, int]:
    """Of the most probable pronunciations the wrong phones, the phones of the references, and the wrong words.

    Of a word's references the one counts that the pronunciation is nearest to. A word without a pronunciation has all its phones wrong.
    """
    wrong = phones = words = 0
    for candidates, several in zip(found, references, strict=True):
        best = list(candidates[0][1]) if candidates else []
        distance, length = min((_distance(best, reference), len(reference)) for reference in several)
        wrong, phones, words = wrong + distance, phones + length, words + (distance > 0)
    return wrong, phones, words


def _distance(a: Sequence[str], b: Sequence[str]) -> int:
    """The Levenshtein distance of two sequences."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]
