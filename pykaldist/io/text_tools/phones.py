"""Transcripts as phones, and counts of their pairs, for chain models that are trained from transcripts alone."""

from __future__ import annotations

import os
import random

from pykaldist.errors import LANG_AGAIN, UserError
from pykaldist.io.text_tools.tool import number, rows_of, shown, text, tool, whole

TYPE_CHECKING = False  # the name that type checkers know; typing's own takes long to import
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pykaldist.io.text_tools.tool import Output

NOTHING = 0  # what stands before the first phone
Pairs = dict[tuple[int, int], int]  # how often (left phone, right phone) occur
Singles = dict[int, int]  # how often phones occur


def read_pronunciations(lang: str) -> dict[bytes, list[bytes]]:
    """The pronunciation of each word of a language directory; of several, the last one (phones/align_lexicon.txt)."""
    rows = rows_of(os.path.join(lang, "phones/align_lexicon.txt"), 2, -1, "word word phone ...")
    return {fields[0]: fields[2:] for fields, _, _ in rows if len(fields) > 2}


def _only_word(path: str) -> bytes:
    words = [fields[0] for fields, _, _ in rows_of(path, 1, 1, "word")]
    if len(words) != 1:
        raise UserError(f"{path}: expected one word, found {len(words)}; {LANG_AGAIN}.")
    return words[0]


class TranscriptPhones:
    """Turns words into phones, with optional silences drawn at the edges and between words."""

    def __init__(self, lang: str, edge_silprob: float, between_silprob: float, seed: int = 0) -> None:
        self.pronunciations = read_pronunciations(lang)
        self.silence = _only_word(os.path.join(lang, "phones/optional_silence.txt"))
        self.edge, self.between, self._random, self.unknown = edge_silprob, between_silprob, random.Random(seed), 0
        oov = _only_word(os.path.join(lang, "oov.txt"))
        if oov not in self.pronunciations:
            raise UserError(f"{lang}/phones/align_lexicon.txt has no pronunciation of {text(oov)}, the word of oov.txt; {LANG_AGAIN}.")
        self._of_unknown = self.pronunciations[oov]

    def __call__(self, words: Sequence[bytes]) -> list[bytes]:
        """The phones of a transcript."""
        phones = [self.silence] if self._random.random() < self.edge else []
        for place, word in enumerate(words, 1):
            self.unknown += word not in self.pronunciations
            phones += self.pronunciations.get(word, self._of_unknown)
            if self._random.random() < (self.between if place < len(words) else self.edge):
                phones.append(self.silence)
        return phones


@tool("""steps/nnet3/chain/e2e/text_to_phones.py [options] <lang-dir> < <text> > <phones>
 e.g.: steps/nnet3/chain/e2e/text_to_phones.py --between-silprob 0.1 data/lang < data/train/text > train.phones
Writes the phones of each utterance of a data directory's text, by one pronunciation of each word.
Options:
  --edge-silprob <p>      # probability of silence at the beginning and at the end (0.8)
  --between-silprob <p>   # and between words (0.2)
  --seed <n>              # of the silences (0)
""", "edge-silprob= between-silprob= seed=", (1, 1))
def text_to_phones_py(options: dict[str, str], lang: str) -> Output:
    """Turns the transcripts of a data directory into phones."""
    edge, between = (number(options.get(name, default), f"--{name}") for name, default in (("edge-silprob", "0.8"),
                                                                                          ("between-silprob", "0.2")))
    if not (0 <= edge <= 1 and 0 <= between <= 1):
        raise UserError(f"--edge-silprob {edge:g} --between-silprob {between:g}: expected probabilities from 0 to 1.")
    phones = TranscriptPhones(lang, edge, between, whole(options.get("seed", "0"), "--seed", 0))
    return (b" ".join([fields[0], *phones(fields[1:])]) + b"\n" for fields, _, _ in rows_of("-", 1, -1, "utterance word ..."))


def count_biphones(sequences: Iterable[Sequence[int]], phone_sets: Sequence[Sequence[int]]) -> tuple[Pairs, Singles]:
    """How often each pair of phones, and each phone, occurs; a set of phones counts as its first, and 0 stands before the first phone.

    Raises UserError for a phone that is in no set.
    """
    first = {phone: phones[0] for phones in phone_sets for phone in phones}
    pairs: Pairs = {}
    singles: Singles = {}
    for sequence in sequences:
        left = NOTHING
        for phone in sequence:
            if phone not in first:
                raise UserError(f"phone {phone} is in none of the sets of phones/sets.int; take the language directory of the phones.")
            right = first[phone]
            pairs[left, right] = pairs.get((left, right), 0) + 1
            singles[right] = singles.get(right, 0) + 1
            left = right
    return pairs, singles


@tool("""steps/nnet3/chain/e2e/compute_biphone_stats.py [--shared-phones true|false] <lang-dir> < <phones> > <counts>
 e.g.: cut -d' ' -f 2- train.phones | steps/nnet3/chain/e2e/compute_biphone_stats.py data/lang > phone-stats.txt
Counts pairs of phones (numbers, an utterance a line): "<left> <right> <count>", left 0 at the beginning; then phones: "<phone> <count>".
  --shared-phones false   # phones of a set are not counted together (true)
""", "shared-phones=", (1, 1))
def compute_biphone_stats_py(options: dict[str, str], lang: str) -> Output:
    """Counts pairs of phones."""
    sets = list(_phones_of(os.path.join(lang, "phones/sets.int")))
    shared = sets if options.get("shared-phones", "true") == "true" else [[phone] for phones in sets for phone in phones]
    return _biphone_lines(*count_biphones(_phones_of("-"), shared), shared)


def _phones_of(path: str) -> Iterator[list[int]]:
    """The phone numbers of each line of a file."""
    for fields, line, count in rows_of(path, 0, -1, "phone ..."):
        if not all(field.isdigit() for field in fields):
            raise UserError(f"{shown(path)}, line {count}: expected numbers of phones, found {text(line)!r}; make them with "
                            "utils/sym2int.pl.")
        yield [int(field) for field in fields]


def _biphone_lines(pairs: Pairs, singles: Singles, sets: Sequence[Sequence[int]]) -> Iterator[bytes]:
    first = {NOTHING: NOTHING, **{phone: phones[0] for phones in sets for phone in phones}}
    for left in first:
        for right in list(first)[1:]:
            if count := pairs.get((first[left], first[right])):
                yield b"%d %d %d\n" % (left, right, count)
    for phone in list(first)[1:]:
        if count := singles.get(first[phone]):
            yield b"%d %d\n" % (phone, count)
