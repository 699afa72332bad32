"""Dictionary directories: the phones and pronunciations, as text, from which a language directory is made.

`silence_phones.txt` and `nonsilence_phones.txt` have a group of phones a line (variants of one phone that share their tree
root), `optional_silence.txt` one silence phone, `lexicon.txt` lines `word phone ...`, `lexiconp.txt` lines
`word probability phone ...` (it goes first where both exist), and `extra_questions.txt`, which may be empty or absent, sets of
phones. The checks are those of Kaldi's validate_dict_dir.pl.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.io.tables import read_lines

RESERVED_WORDS = ("<s>", "</s>", "<eps>", "#0")
FILES = ("lexiconp.txt", "lexicon.txt", "silence_phones.txt", "nonsilence_phones.txt", "optional_silence.txt", "extra_questions.txt")
POSITION_SUFFIXES = ("_B", "_E", "_I", "_S")


@dataclass(frozen=True)
class Pronunciation:
    """A word, the probability of this pronunciation, and its phones."""

    word: str
    probability: float
    phones: tuple[str, ...]


@dataclass(frozen=True)
class DictDir:
    """The checked content of a dictionary directory."""

    silence: list[list[str]]
    nonsilence: list[list[str]]
    optional_silence: str
    lexicon: list[Pronunciation]
    extra_questions: list[list[str]]

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> DictDir:
        """Read a dictionary directory and check it; raises UserError with file and line."""
        path = Path(path)
        if not path.is_dir():
            raise UserError(f"{path} is no dictionary directory; make it with the recipe's data preparation.")
        if (path / "lexiconp_silprob.txt").exists():
            raise UserError(f"{path}/lexiconp_silprob.txt: silence probabilities of single words are not used here; remove the "
                            "file (pronunciation probabilities belong in lexiconp.txt).")
        seen: dict[str, str] = {}
        silence = _read_phones(path / "silence_phones.txt", seen)
        nonsilence = _read_phones(path / "nonsilence_phones.txt", seen)
        optional = [line.split() for line in _lines(path / "optional_silence.txt")]
        if len(optional) != 1 or len(optional[0]) != 1 or seen.get(optional[0][0]) != "silence_phones.txt":
            raise UserError(f"{path}/optional_silence.txt: expected one phone of silence_phones.txt, found {optional}.")
        return cls(silence, nonsilence, optional[0][0], _read_lexicon(path, seen), _read_questions(path, seen))


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        raise UserError(f"{path} does not exist; make it with the recipe's data preparation.")
    return read_lines(path)


def _read_phones(path: Path, seen: dict[str, str]) -> list[list[str]]:
    groups = []
    for number, line in enumerate(_lines(path), 1):
        phones = line.split()
        if not phones:
            raise UserError(f"{path}, line {number}: empty line; remove it.")
        for phone in phones:
            if phone in seen:
                both = "twice" if seen[phone] == path.name else f"in {seen[phone]} too"
                raise UserError(f"{path}, line {number}: phone {phone} is listed {both}; keep one.")
            if phone == "<eps>" or phone.startswith("#") or phone.endswith(POSITION_SUFFIXES):
                raise UserError(f"{path}, line {number}: phone {phone} has a reserved name (<eps>, # in front, or _B, _E, _I, _S "
                                "behind); rename it.")
            seen[phone] = path.name
        groups.append(phones)
    if not groups:
        raise UserError(f"{path} is empty; list the phones in it.")
    return groups


def _read_lexicon(path: Path, phones: dict[str, str]) -> list[Pronunciation]:
    with_probabilities = (path / "lexiconp.txt").is_file()
    file = path / ("lexiconp.txt" if with_probabilities else "lexicon.txt")
    lexicon: list[Pronunciation] = []
    seen: dict[tuple[str, tuple[str, ...]], int] = {}
    for number, line in enumerate(_lines(file), 1):
        where = f"{file}, line {number}"
        fields = line.split()
        if not fields:
            raise UserError(f"{where}: empty line; remove it.")
        word, rest, probability = fields[0], fields[1:], 1.0
        if word in RESERVED_WORDS:
            raise UserError(f"{where}: {word} is reserved; it must not be in the lexicon.")
        if with_probabilities:
            try:
                probability, rest = float(rest[0]), rest[1:]
            except (IndexError, ValueError) as error:
                raise UserError(f"{where}: expected `word probability phone ...`, found {line!r}.") from error
            if not 0 < probability <= 1:
                raise UserError(f"{where}: {word} has the probability {probability:g}; it must be above 0 and at most 1.")
        if not rest:
            raise UserError(f"{where}: {word} has no phones; add its pronunciation or remove the line.")
        unknown = next((phone for phone in rest if phone not in phones), None)
        if unknown is not None:
            raise UserError(f"{where}: {word} has the phone {unknown}, which is neither in silence_phones.txt nor in "
                            "nonsilence_phones.txt.")
        key = (word, tuple(rest))
        if key in seen:
            raise UserError(f"{where}: {word} has this pronunciation in line {seen[key]} too; keep one.")
        seen[key] = number
        lexicon.append(Pronunciation(word, probability, tuple(rest)))
    if not lexicon:
        raise UserError(f"{file} is empty; put the pronunciations in it.")
    return lexicon


def _read_questions(path: Path, phones: dict[str, str]) -> list[list[str]]:
    file = path / "extra_questions.txt"
    questions = [line.split() for line in read_lines(file)] if file.is_file() else []
    for number, question in enumerate(questions, 1):
        unknown = next((phone for phone in question if phone not in phones), None)
        if unknown is not None or len(set(question)) != len(question):
            problem = f"phone {unknown} is unknown" if unknown is not None else "a phone is listed twice"
            raise UserError(f"{file}, line {number}: {problem}; correct the line.")
    return questions
