"""Kaldi language directories: symbol tables, phone lists, the out-of-vocabulary word, the lexicon for word alignment."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path

from pykaldist.errors import LANG_AGAIN, UserError
from pykaldist.io.tables import read_lines, read_map, read_whole_lines

EPSILON = "<eps>"
BOUNDARIES = ("begin", "end", "internal", "singleton", "nonword")


class SymbolTable(Mapping[str, int]):
    """Symbols and their numbers, as in `words.txt` and `phones.txt`; `name` is the file, for messages."""

    def __init__(self, ids: dict[str, int], name: str = "symbol table") -> None:
        self._ids, self.name = ids, name
        self._symbols = {number: symbol for symbol, number in ids.items()}
        if len(self._symbols) != len(ids):
            raise UserError(f"{name}: two symbols have the same number; {LANG_AGAIN}.")

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> SymbolTable:
        """Lines `symbol number`; raises UserError for a repeated symbol or number, or a line of another form."""
        table = {}
        for symbol, number in read_map(path, whole=True).items():
            if not number.isdecimal():
                raise UserError(f"{path}, {symbol}: expected a number, found {number!r}; {LANG_AGAIN}.")
            table[symbol] = int(number)
        return cls(table, str(path))

    def __getitem__(self, symbol: str) -> int:
        return self._ids[symbol]

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def symbol(self, number: int) -> str:
        """The symbol of a number; raises UserError for a number that has none."""
        if number not in self._symbols:
            raise UserError(f"{self.name} has no symbol {number}; the language directory and the model or graph do not belong "
                            "together.")
        return self._symbols[number]

    def ids(self, symbols: Iterable[str], where: str) -> list[int]:
        """The numbers of symbols; raises UserError, naming `where`, for a symbol that is unknown."""
        symbols = list(symbols)
        unknown = next((s for s in symbols if s not in self._ids), None)
        if unknown is not None:
            raise UserError(f"{where}: {unknown} is not in {self.name}.")
        return [self._ids[s] for s in symbols]


class LangDir:
    """A Kaldi language directory; files are read when first asked for.

    Raises UserError for a missing directory or file, and for one of the wrong form.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.is_dir():
            raise UserError(f"{path} is no language directory; run utils/prepare_lang.sh.")

    def file(self, name: str) -> Path:
        """The path of one of the directory's files, which must exist."""
        path = self.path / name
        if not path.is_file():
            raise UserError(f"{path} does not exist; run utils/prepare_lang.sh.")
        return path

    @cached_property
    def words(self) -> SymbolTable:
        return SymbolTable.read(self.file("words.txt"))

    @cached_property
    def phones(self) -> SymbolTable:
        return SymbolTable.read(self.file("phones.txt"))

    @cached_property
    def oov(self) -> str:
        """The word that stands for words outside the lexicon."""
        fields = " ".join(read_lines(self.file("oov.txt"))).split()
        if len(fields) != 1 or fields[0] not in self.words:
            raise UserError(f"{self.path}/oov.txt: expected one word of words.txt, found {' '.join(fields)!r}.")
        return fields[0]

    def int_lists(self, name: str) -> list[list[int]]:
        """A file of integers, line by line."""
        path = self.file(name)
        rows = [line.split() for line in read_whole_lines(path)]
        bad = next((field for row in rows for field in row if not field.isdecimal()), None)
        if bad is not None:
            raise UserError(f"{path}: expected integers, found {bad!r}; {LANG_AGAIN}.")
        return [[int(field) for field in row] for row in rows if row]

    def _phone_list(self, name: str) -> list[int]:
        return [phone for row in self.int_lists(f"phones/{name}.int") for phone in row]

    @cached_property
    def silence_phones(self) -> list[int]:
        return self._phone_list("silence")

    @cached_property
    def nonsilence_phones(self) -> list[int]:
        return self._phone_list("nonsilence")

    @cached_property
    def disambig_phones(self) -> list[int]:
        return self._phone_list("disambig")

    @cached_property
    def optional_silence(self) -> int:
        """The phone that may stand between words."""
        phones = self._phone_list("optional_silence")
        if len(phones) != 1:
            raise UserError(f"{self.path}/phones/optional_silence.int: expected one phone, found {len(phones)}.")
        return phones[0]

    @cached_property
    def phone_sets(self) -> list[list[int]]:
        """`phones/sets.int`: phones that share their pdfs in a monophone system."""
        rows = self.int_lists("phones/sets.int")
        self._check_phones("sets", [phone for row in rows for phone in row])
        return rows

    def _check_phones(self, name: str, found: list[int]) -> None:
        """Check that a file has each phone once."""
        real = sorted(number for symbol, number in self.phones.items() if symbol != EPSILON and not symbol.startswith("#"))
        if sorted(found) != real:
            odd = min(set(real) ^ set(found), default=0)
            raise UserError(f"{self.path}/phones/{name}.int does not have each phone of phones.txt "
                            f"once{f' (look at {odd})' if odd else ''}; {LANG_AGAIN}.")

    @cached_property
    def word_disambig(self) -> tuple[int, int]:
        """The numbers of the disambiguation symbol #0 as a phone and as a word."""
        return (self.int_lists("phones/wdisambig_phones.int")[0][0], self.int_lists("phones/wdisambig_words.int")[0][0])

    @cached_property
    def word_boundary(self) -> dict[int, str] | None:
        """Phone -> begin, end, internal, singleton or nonword; None where phones do not depend on the position."""
        if not (self.path / "phones/word_boundary.int").is_file():
            return None
        table = read_map(self.path / "phones/word_boundary.int", whole=True)
        for phone, kind in table.items():
            if not phone.isdecimal() or kind not in BOUNDARIES:
                raise UserError(f"{self.path}/phones/word_boundary.int, {phone}: expected a phone's number and one of "
                                f"{', '.join(BOUNDARIES)}, found {kind!r}; {LANG_AGAIN}.")
        self._check_phones("word_boundary", [int(phone) for phone in table])
        return {int(phone): kind for phone, kind in table.items()}

    @cached_property
    def align_lexicon(self) -> list[tuple[int, list[int]]]:
        """(word, phones) for each pronunciation; word 0 is the optional silence."""
        path, rows = self.path / "phones/align_lexicon.int", self.int_lists("phones/align_lexicon.int")
        phones = set(self.phones.values())
        for line, row in enumerate(rows, 1):
            if len(row) < 3 or not phones.issuperset(row[2:]):
                raise UserError(f"{path}, line {line}: expected a word, the word again and its phones, of phones.txt, found "
                                f"{' '.join(map(str, row))!r}; {LANG_AGAIN}.")
        said = {number for symbol, number in self.words.items() if symbol not in (EPSILON, "<s>", "</s>") and not symbol.startswith("#")}
        for numbers, what in ((said - {row[0] for row in rows}, "lacks word"), ({row[0] for row in rows} - said - {0}, "has no word")):
            if numbers:
                raise UserError(f"{path} {what} {min(numbers)}; {LANG_AGAIN}.")
        return [(row[0], row[2:]) for row in rows]

    @cached_property
    def modelled_words(self) -> list[int]:
        """The words whose pronunciation is a phone language model (prepare_lang.sh --unk-fst); disambiguation symbols are in its place."""
        symbols = {number for symbol, number in self.phones.items() if symbol.startswith("#")}
        return [word for word, phones in self.align_lexicon if not symbols.isdisjoint(phones)]

    def word_ids(self, words: Iterable[str]) -> tuple[list[int], list[str]]:
        """The numbers of a transcript's words, and those words that are not in the lexicon, which get the number of `oov`."""
        ids, unknown = [], []
        for word in words:
            number = self.words.get(word)
            if number is None:
                unknown.append(word)
                number = self.words[self.oov]
            ids.append(number)
        return ids, unknown


def check_phones(lang: LangDir, src: Path) -> None:
    """Check that the model's phones are those of the language directory, disambiguation symbols aside."""
    check_same_phones(src, lang.path, "use the language directory that the model was trained with")


def check_same_phones(one: Path, other: Path, cure: str) -> None:
    """Check that the phones.txt of two folders agree, disambiguation symbols aside; nothing is compared where one of them has none.

    Raises UserError, which ends in the cure.
    """
    files = one / "phones.txt", other / "phones.txt"
    if not all(path.is_file() for path in files):
        return
    tables = [SymbolTable.read(path) for path in files]
    for symbol in sorted({*tables[0], *tables[1]}):
        numbers = [table.get(symbol, "none") for table in tables]
        if not symbol.startswith("#") and numbers[0] != numbers[1]:
            raise UserError(f"{files[0]} and {files[1]} disagree about {symbol}, whose numbers are {numbers[0]} and {numbers[1]}; {cure}.")
