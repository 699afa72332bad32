"""Translation of the phones and words of other systems to those of a language directory.

A phone is looked up by its name; then whatever its case; then by its number; then as silence, if it is one of the usual names for that;
then without a position suffix (`AA1_B`), or, where the language directory's phones have such suffixes, with the one of its place in the
word. Without words that place is unknown and taken to be inside: phones that differ in position share their pdfs in any monophone tree.
"""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np

from pykaldist.hmm.import_ali.sources.base import Interval
from pykaldist.hmm.lang.topology import Topology
from pykaldist.io.lang import EPSILON, LangDir

SILENCE_NAMES = frozenset({"", "sil", "sp", "silence", "<eps>", "<sil>", "!sil", "pau", "h#"})
_SUFFIXES = {"begin": "_B", "end": "_E", "internal": "_I", "singleton": "_S"}


class PhoneLabels:
    """Looks labels up among the phones of `lang`; `unknown` counts those that are not found."""

    def __init__(self, lang: LangDir) -> None:
        self.lang = lang
        self.unknown: Counter[str] = Counter()
        self._ids = {name: number for name, number in lang.phones.items() if name != EPSILON and not name.startswith("#")}
        self._folded = {name.lower(): number for name, number in self._ids.items()}
        self._numbers = set(self._ids.values())

    def find(self, label: str, place: str = "internal") -> int | None:
        """The phone of a label at its `place` in the word (as in word_boundary.int), or None."""
        for name in (label, f"{label}{_SUFFIXES[place]}"):
            number = self._ids.get(name, self._folded.get(name.lower()))
            if number is not None:
                return number
        if label.isdecimal() and int(label) in self._numbers:
            return int(label)
        if label.lower() in SILENCE_NAMES:
            return self.lang.optional_silence
        stem, _, suffix = label.rpartition("_")
        return self.find(stem, place) if stem and f"_{suffix}" in _SUFFIXES.values() else None

    def phone(self, label: str, place: str = "internal") -> int:
        """`find`, with 0 for a label that is not found, which is counted."""
        number = self.find(label, place)
        if number is None:
            self.unknown[label] += 1
        return number or 0

    def is_phone_number(self, values: np.ndarray) -> bool:
        """Whether all values are numbers of phones."""
        return set(np.unique(values).tolist()) <= self._numbers


def places(phones: list[Interval], words: list[Interval] | None) -> list[str]:
    """The place in its word of each phone; the word is the one that the phone's middle lies in."""
    spoken = [w for w in words or [] if w.label.lower() not in SILENCE_NAMES]
    owners, at = [], 0
    for phone in phones:
        middle = (phone.start + phone.end) / 2
        while at < len(spoken) and spoken[at].end <= middle:
            at += 1
        owners.append(at if at < len(spoken) and spoken[at].start <= middle else -1)
    result = ["internal"] * len(phones)
    for owner, group in itertools.groupby(range(len(phones)), key=lambda i: owners[i]):
        members = list(group)
        if owner >= 0:
            result[members[0]], result[members[-1]] = ("singleton",) * 2 if len(members) == 1 else ("begin", "end")
    return result


def find_word(lang: LangDir, word: str) -> int | None:
    """The number of a word, in capitals or not; 0, <eps>, for the usual names of silence; None for an unknown word."""
    number = next((lang.words[w] for w in (word, word.upper(), word.lower()) if w in lang.words), None)
    return 0 if number is None and word.lower() in SILENCE_NAMES else number


class Pronunciations:
    """The pronunciations of words, by the lexicon of a language directory.

    Nothing is heard here: of several pronunciations the first is taken whose HMMs have room in the word's frames, or the shortest; its
    phones share the frames equally. That is a start for training and realignment, not a phone alignment. `unknown` counts words that
    the lexicon lacks; they get the pronunciation of the OOV word.
    """

    def __init__(self, lang: LangDir, topology: Topology) -> None:
        self.lang, self.topology = lang, topology
        self.unknown: Counter[str] = Counter()
        self._of_word: dict[int, list[list[int]]] = {}
        for word, phones in lang.align_lexicon:
            if word not in lang.modelled_words:
                self._of_word.setdefault(word, []).append(phones)

    def spread(self, word: str, frames: int) -> list[tuple[int, int]]:
        """Divide `frames` frames among the phones of a word: (phone, frames) for each."""
        number = find_word(self.lang, word)
        if number is None:
            self.unknown[word] += 1
            number = self.lang.words[self.lang.oov]
        ways = self._of_word.get(number, [[self.lang.optional_silence]])
        phones = next((way for way in ways if sum(map(self.topology.min_length, way)) <= frames), min(ways, key=len))
        count = len(phones)
        return [(phone, frames // count + (k < frames % count)) for k, phone in enumerate(phones)]
