"""Which phones are taken for which, in the stretches of words that differ.

A word that was recognised has its phones right. Of a stretch of wrong words the recognised phones are those of the best path, the
reference's those of its words in the lexicon: of several pronunciations the ones with the fewest differences, as far as COMBINATIONS of
them go.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import kaldialign

from pykaldist.report.page.systems import Pairs
from pykaldist.score.alignment import GAP

COMBINATIONS = 64
Spelled = Sequence[tuple[str, tuple[str, ...]]]
"""Words with their phones."""


def phone_pairs(pairs: Pairs, said: Spelled, lexicon: Mapping[str, Sequence[tuple[str, ...]]]) -> Pairs:
    """The phones of an utterance's wrong stretches, aligned: (of the reference, recognised), `***` in a gap.

    `pairs` are its aligned words, `said` those of the best path. A stretch is left out whose reference has a word that the lexicon lacks;
    none is there where the best path has other words than were scored, as where scoring leaves some out.
    """
    if [word for word, _ in said] != [hyp for _, hyp in pairs if hyp != GAP]:
        return []
    found: Pairs = []
    for reference, recognised in _stretches(pairs, said):
        if all(word in lexicon for word in reference):
            choices = itertools.islice(itertools.product(*(lexicon[word] for word in reference)), COMBINATIONS)
            aligned = [_aligned(list(itertools.chain(*choice)), recognised) for choice in choices]
            found += min(aligned, key=lambda one: sum(ref != hyp for ref, hyp in one))
    return found


def _stretches(pairs: Pairs, said: Spelled) -> Iterator[tuple[list[str], list[str]]]:
    """(words of the reference, recognised phones) of each stretch of wrong words."""
    place = 0
    for right, stretch in itertools.groupby(pairs, key=lambda pair: pair[0] == pair[1]):
        some = list(stretch)
        count = sum(hyp != GAP for _, hyp in some)
        if not right:
            yield [ref for ref, _ in some if ref != GAP], [phone for _, phones in said[place:place + count] for phone in phones]
        place += count


def _aligned(reference: list[str], recognised: list[str]) -> Pairs:
    return [(ref, hyp) for ref, hyp in kaldialign.align(reference, recognised, GAP)]
