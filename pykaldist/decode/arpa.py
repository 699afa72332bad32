"""ARPA language models: a strict check of the file, and the grammar transducer G made of it.

kaldilm makes the transducer, as Kaldi's arpa2fst --disambig-symbol=#0: a state a history, back-off arcs that take #0, n-grams with words
outside words.txt left out. It says little about a file with errors, so `check_arpa` reads the file first.
"""

from __future__ import annotations

import gzip
import math
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import kaldilm
import numpy as np

from pykaldist.errors import UserError
from pykaldist.io import provenance
from pykaldist.io.atomic import copy_file, copy_tree
from pykaldist.io.entries import open_archive
from pykaldist.io.fst import Fst
from pykaldist.io.fst_compose import sort_arcs, trimmed
from pykaldist.io.fstops import remove_eps_local
from pykaldist.io.tables import read_lines, read_map

_CHUNK = 100_000  # n-grams whose histories are looked up at once


@dataclass
class ArpaSummary:
    """A summary of an ARPA file that `check_arpa` has read."""

    counts: list[int]  # n-grams of each order
    outside: int  # n-grams with a word outside the vocabulary
    outside_words: list[str]


def read_arpa_lines(path: str | os.PathLike[str]) -> Iterator[str]:
    """The lines of an ARPA file one by one, gzipped if it ends in `.gz`; raises UserError where it cannot be read."""
    before = 0  # bytes of the lines before
    try:
        with open_archive(path) as stream:
            for line in stream:
                yield line.decode("utf-8").rstrip("\r\n")
                before += len(line)
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text (byte {before + error.start}); convert it with iconv.") from error
    except EOFError as error:
        raise UserError(f"{path} is truncated; make it or fetch it again.") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path} is no readable gzip file, though its name ends in .gz; make it or fetch it again.") from error


def check_arpa(path: str | os.PathLike[str], vocabulary: set[str]) -> ArpaSummary:
    """Read a whole ARPA file (gzipped if it ends in `.gz`); raises UserError, with the line, for the first error.

    Errors are: a missing section, counts that do not hold, a number that is none or is impossible, an n-gram of the wrong length or given
    twice, one whose history (all but its last word) is no n-gram, and the want of <s> or </s>.
    """
    last = 0

    def numbered() -> Iterator[tuple[int, str]]:
        nonlocal last
        for last, line in enumerate(read_arpa_lines(path), 1):
            if text := line.strip():
                yield last, text

    def wrong(number: int, what: str) -> UserError:
        return UserError(f"{path}, line {number}: {what}.")

    items = numbered()
    if not any(line == "\\data\\" for _, line in items):
        raise UserError(f"{path} is no ARPA language model: it has no \\data\\ section.")
    number, line = next(items, (last, ""))
    counts: list[int] = []
    while line.startswith("ngram "):
        order_text, _, count_text = line[6:].partition("=")
        if order_text.strip() != str(len(counts) + 1) or not count_text.strip().isdigit():
            raise wrong(number, f"expected `ngram {len(counts) + 1}=COUNT`, found {line!r}")
        counts.append(int(count_text))
        number, line = next(items, (last, ""))
    if not counts:
        raise wrong(number, f"expected `ngram 1=COUNT` after \\data\\, found {line!r}")
    sections = _Sections(vocabulary, wrong)
    for order, count in enumerate(counts, 1):
        if line != f"\\{order}-grams:":
            raise wrong(number, f"expected the section \\{order}-grams:, found {line or 'the end of the file'!r}")
        found = 0
        for number, line in items:
            if line.startswith("\\"):
                break
            sections.add(number, line, order)
            found += 1
        else:
            number, line = last, ""
        sections.end(order)
        if found != count:
            raise wrong(number, f"\\data\\ promises {count} {order}-grams, and {found} are there")
        if order == 1:
            for word in ("<s>", "</s>"):
                if word not in sections.number:
                    raise wrong(number, f"the unigrams lack {word}")
    if line != "\\end\\":
        raise wrong(number, f"expected \\end\\, found {line or 'the end of the file'!r}")
    return ArpaSummary(counts, sections.outside, sorted(sections.strange))


class _Sections:
    """The n-grams of an ARPA file, section by section; what is kept are sorted keys: place of the history among the shorter ones, word."""

    def __init__(self, vocabulary: set[str], wrong: Callable[[int, str], UserError]) -> None:
        self.number: dict[str, int] = {}  # of each word
        self.outside = 0  # n-grams with a word outside the vocabulary
        self.strange: set[str] = set()  # these words
        self._vocabulary, self._wrong = vocabulary | {"<s>", "</s>"}, wrong
        self._shorter: list[np.ndarray] = []  # sorted keys of each order that is complete
        self._keys: list[np.ndarray] = []
        self._lines: list[np.ndarray] = []
        self._words: list[list[int]] = []
        self._at: list[int] = []

    def add(self, number: int, line: str, order: int) -> None:
        """Take the n-gram of a line; raises UserError for one that is none."""
        try:
            ngram = _ngram(line, order, self._wrong, number)
        except UserError:
            self._flush()  # an earlier line's error comes first
            raise
        unknown = [word for word in ngram if word not in self._vocabulary]
        self.outside += bool(unknown)
        self.strange.update(unknown)
        self._words.append([self.number.setdefault(word, len(self.number)) for word in ngram])
        self._at.append(number)
        if len(self._at) == _CHUNK:
            self._flush()

    def _flush(self) -> None:
        """Make keys of the lines that wait."""
        if not self._at:
            return
        words, lines = np.array(self._words, np.int64), np.array(self._at, np.int64)
        history = np.zeros(len(words), np.int64)
        for shorter, word in zip(self._shorter, words.T, strict=False):
            wanted = (history << 32) | word
            history = np.minimum(np.searchsorted(shorter, wanted), len(shorter) - 1)
            missing = np.flatnonzero(shorter[history] != wanted) if len(shorter) else np.zeros(1, np.int64)
            if len(missing):
                order, names = words.shape[1], list(self.number)
                raise self._wrong(int(lines[missing[0]]), f"the history {' '.join(names[w] for w in words[missing[0], :-1])!r} of this "
                                  f"{order}-gram is not among the {order - 1}-grams, so it has no back-off")
        self._keys.append((history << 32) | words[:, -1])
        self._lines.append(lines.astype(np.uint32))
        self._words, self._at = [], []

    def end(self, order: int) -> None:
        """End a section; raises UserError for an n-gram that is given twice."""
        self._flush()
        keys = np.concatenate([np.empty(0, np.int64), *self._keys])
        self._keys = []
        in_order = np.sort(keys)
        twins = in_order[1:][in_order[1:] == in_order[:-1]]
        if len(twins):
            at = np.concatenate(self._lines)
            number, twin = min((int(np.sort(at[keys == twin])[1]), int(twin)) for twin in twins[:1000])
            names, words = list(self.number), []
            for shorter in [*self._shorter[::-1], None]:
                words.append(names[twin & 0xFFFFFFFF])
                twin = int(shorter[twin >> 32]) if shorter is not None else 0
            raise self._wrong(number, f"the {order}-gram {' '.join(reversed(words))!r} is given twice")
        self._lines = []
        self._shorter.append(in_order)


def _ngram(line: str, order: int, wrong: Callable[[int, str], UserError], number: int) -> tuple[str, ...]:
    fields = line.split()
    if len(fields) not in (order + 1, order + 2):
        raise wrong(number, f"expected a log-probability, {order} words and perhaps a back-off weight, found {line!r}")
    for i in (0, *([order + 1] if len(fields) == order + 2 else [])):
        try:
            value = float(fields[i])
        except ValueError:
            value = math.nan
        if math.isnan(value) or value == math.inf or (i == 0 and value > 1e-4):
            raise wrong(number, f"expected {'a back-off weight' if i else 'a base-10 log-probability, at most 0'}, found {fields[i]!r}")
    return tuple(fields[1 : order + 1])


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Send what compiled code writes to descriptor 2 to a file."""
    kept = os.dup(2)
    try:
        with open(path, "wb") as stream:
            os.dup2(stream.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def grammar(arpa: str | os.PathLike[str], words: str | os.PathLike[str]) -> tuple[Fst, ArpaSummary]:
    """Make the transducer G of an ARPA file over the symbols of `words` (words.txt); raises UserError for errors in the file."""
    symbols = read_map(words)
    if "#0" not in symbols:
        raise UserError(f"{words} has no #0, which back-off arcs take; make the language directory with utils/prepare_lang.sh.")
    summary = check_arpa(arpa, set(symbols))
    with tempfile.TemporaryDirectory() as folder:
        plain, target, messages = (Path(folder) / name for name in ("arpa", "fst", "messages"))
        with open_archive(arpa) as source, open(plain, "wb") as stream:
            shutil.copyfileobj(source, stream)
        try:
            with _stderr_to(messages):
                kaldilm.arpa2fst(str(plain), str(target), disambig_symbol="#0", read_symbol_table=str(words), max_arpa_warnings=0)
        except RuntimeError as error:
            raise UserError(f"{arpa} cannot be made an FST: {str(error).splitlines()[0]}.") from error
        fst = Fst.read(target)
    if fst.num_states == 0 or not np.isin(fst.ilabel, [0, int(symbols["#0"])], invert=True).any():
        raise UserError(f"{arpa} has no sentence of words that are in {words}; its words are such as "
                        f"{', '.join(summary.outside_words[:5])}; train it on text of this vocabulary, in its spelling (upper or lower "
                        "case).")
    # A history from which one can only back off needs no state of its own.
    lone = (np.diff(fst.offset) == 1) & np.isinf(fst.final)
    fst.ilabel[lone[fst.source] & (fst.ilabel == int(symbols["#0"]))] = 0
    fst = trimmed(remove_eps_local(fst))
    sort_arcs(fst.offset, fst.ilabel, fst.olabel, fst.weight, fst.nextstate)
    return fst, summary


def format_lm(lang: str | os.PathLike[str], arpa: str | os.PathLike[str], lexicon: str | os.PathLike[str],
              out_lang: str | os.PathLike[str]) -> tuple[Fst, ArpaSummary]:
    """Write `out_lang`: a copy of `lang` with G.fst from an ARPA file; returns G and what the file held.

    Raises UserError for errors in the ARPA file, and where words that `lexicon` gives no phones make a cycle in G, which could be
    followed for ever without input.
    """
    lang, out_lang = Path(lang), Path(out_lang)
    in_place = out_lang.resolve() == lang.resolve()
    if not in_place:
        provenance.check(lang)
    if not (lang / "words.txt").is_file() or not (lang / "L_disambig.fst").is_file():
        raise UserError(f"{lang} is no language directory (no words.txt or L_disambig.fst); make it with utils/prepare_lang.sh.")
    symbols = read_map(lang / "words.txt")
    fst, summary = grammar(arpa, lang / "words.txt")
    silent = {fields[0] for fields in map(str.split, read_lines(lexicon)) if len(fields) == 1}
    labels = [0, int(symbols["#0"]), *(int(symbols[word]) for word in silent if word in symbols)]
    if _has_cycle(fst, np.isin(fst.ilabel, labels)):
        raise UserError(f"{arpa} has a cycle of words without phones ({', '.join(sorted(silent)) or 'back-offs only'}); "
                        f"give them pronunciations in {lexicon}.")
    out_lang.mkdir(parents=True, exist_ok=True)
    (out_lang / "G.fst").unlink(missing_ok=True)
    if not in_place:
        provenance.forget(out_lang)
        for path in lang.iterdir():
            if path.is_dir() and path.name == "phones":
                copy_tree(path, out_lang / path.name)
            elif path.is_file() and path.name not in ("G.fst", provenance.FILE):
                copy_file(path, out_lang / path.name)
    fst.write(out_lang / "G.fst")
    taken = [] if in_place else [lang / "words.txt", lang / "L_disambig.fst"]
    provenance.record(out_lang, "utils/format_lm.sh", [arpa, lexicon, *taken], sources=[lang])
    return fst, summary


def _has_cycle(fst: Fst, among: np.ndarray) -> bool:
    """Whether the arcs that `among` selects form a cycle; it peels off arcs that lead to states with none of them."""
    source, target = fst.source[among], fst.nextstate[among]
    while len(source):
        goes_on = np.isin(target, source)
        if goes_on.all():
            return True
        source, target = source[goes_on], target[goes_on]
    return False
