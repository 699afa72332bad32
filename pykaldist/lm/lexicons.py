"""The lexicon of a corpus's words: from graphemes, or from a given lexicon and, for words that it lacks, a letter-to-sound model of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from pykaldist.errors import UserError
from pykaldist.io.corpora.dictionary import NOISE_WORDS, Lexicon, read_lexicon
from pykaldist.io.corpora.table.words import graphemes, words_of
from pykaldist.lm.g2p import LetterToSound, errors, sequences, train

ORDER = 5  # of the n-grams of graphones
MOST_ENTRIES = 60000  # of a lexicon, that a letter-to-sound model is trained on
_VARIANT = re.compile(r"\(\d+\)$")  # cmudict's `word(2)`


@dataclass
class Pronounced:
    """A lexicon, the words that a letter-to-sound model has pronounced, those without a pronunciation, and sentences about it."""

    lexicon: Lexicon
    modelled: list[str] = field(default_factory=list)
    without: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


def of_graphemes(words: Iterable[str]) -> Pronounced:
    """A lexicon in which each letter, with the marks that belong to it, is a phone."""
    lexicon: Lexicon = {word: [tuple(graphemes(word))] for word in sorted(set(words))}
    letters = {letter for variants in lexicon.values() for letter in variants[0]}
    return Pronounced(lexicon, said=[f"{len(lexicon)} words of {len(letters)} graphemes"])


def of_file(path: str, words: Iterable[str], language: str = "") -> Pronounced:
    """The words of a given lexicon, and those of `words` that it lacks, by a letter-to-sound model of it.

    The lexicon's words are written as transcripts' are (`words_of`); those that are no word then, such as <SIL> or `forty-two`, are left
    out, and so is a column of probabilities. Raises UserError for a lexicon without any of the words.
    """
    given: Lexicon = {}
    left_out = 0
    for word, variants in read_lexicon(path).items():
        small = [] if word[0] in "<!" else words_of(_VARIANT.sub("", word), language)
        left_out += len(small) != 1
        if len(small) == 1:
            known = given.setdefault(small[0], [])
            known += [phones for variant in variants if (phones := _phones(path, word, variant)) not in known]
    wanted = sorted(set(words))
    missing = [word for word in wanted if word not in given]
    if len(missing) == len(wanted):
        raise UserError(f"{path} has none of the {len(wanted)} words of the transcripts, such as {wanted[0]}, but {len(given)} others"
                        f"{f', such as {min(given)}' if given else ''}; give a lexicon of the same language and script, or graphemes.")
    result = Pronounced(given, said=[f"{len(given)} words of {path}" + f"; {left_out} others are no words of transcripts" * (left_out > 0)])
    if missing:
        add_modelled(result, missing)
    return result


def _phones(path: str, word: str, variant: tuple[str, ...]) -> tuple[str, ...]:
    """A pronunciation without the probability that lexiconp.txt has before it."""
    try:
        float(variant[0])
    except ValueError:
        return variant
    if len(variant) == 1:
        raise UserError(f"{path}: {word} has a probability and no phones; correct the line.")
    return variant[1:]


def add_modelled(result: Pronounced, missing: Sequence[str]) -> None:
    """Pronounce words by a letter-to-sound model of the lexicon so far, and say how good the model is on words held out from it."""
    names = sorted(result.lexicon)
    if len(names) > MOST_ENTRIES:
        drawn = np.random.default_rng(0).permutation(len(names))[:MOST_ENTRIES]
        names = [names[i] for i in sorted(drawn)]
    held_out = names[::20]
    tokens, _ = sequences([(list(word), list(phones)) for word in names for phones in result.lexicon[word]])
    tested = set(held_out)
    fewer, _ = sequences([(list(word), list(phones)) for word in names if word not in tested for phones in result.lexicon[word]])
    wrong, phones, _ = errors(LetterToSound(train(fewer, ORDER)).pronounce([list(word) for word in held_out]),
                              [result.lexicon[word] for word in held_out]) if fewer else (0, 0, 0)
    for word, found in zip(missing, LetterToSound(train(tokens, ORDER)).pronounce([list(word) for word in missing]), strict=True):
        if found:
            result.lexicon[word] = [found[0][1]]
            result.modelled.append(word)
        else:
            result.without.append(word)
    if result.modelled:
        result.said.append(f"{len(result.modelled)} words that it lacks are pronounced by a letter-to-sound model of it, such as "
                           + "; ".join(f"{word} {' '.join(result.lexicon[word][0])}" for word in result.modelled[:3])
                           + (f" ({100 * wrong / phones:.1f} % of phones wrong on {len(held_out)} words held out)" if phones else ""))
    if result.without:
        result.said.append(f"{len(result.without)} words have no pronunciation, for they have letters that the lexicon lacks, and count as "
                           f"{list(NOISE_WORDS)[1]}: {' '.join(result.without[:8])}{' ...' * (len(result.without) > 8)}")
