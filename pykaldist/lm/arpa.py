"""ARPA files of n-gram models, read into arrays and written, some million bytes after the other."""

from __future__ import annotations

import gzip
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat

import numpy as np

from pykaldist.errors import UserError
from pykaldist.io.atomic import atomic_open
from pykaldist.lm.model import BOS, EOS, NgramModel, Order
from pykaldist.lm.texts import blocks_of_lines
from pykaldist.progress import Progress

LOG10 = math.log(10.0)
_PART = 100_000  # n-grams that are written at a time
_LEAST = -99.0  # what stands for the logarithm of zero
_WORD = (1 << 32) - 1  # the bits of a key that are the word; those above are the history's number


def read_arpa(path: str | os.PathLike[str], most: int = 0, lower_case: bool = False) -> NgramModel:
    """Read an ARPA file; of its orders the first `most`, all for 0.

    With `lower_case` the words become lower case, and of n-grams that are one then the first counts. Raises UserError as `read_ngrams`.
    """
    reader = _Reader(path, None, np.float64, most, lower_case)
    orders = reader.read()
    while not len(orders[-1]):
        orders.pop()
    for order in orders:
        order.logprob = np.where(order.logprob <= _LEAST, -np.inf, np.minimum(order.logprob, 0.0) * LOG10)
        order.backoff = np.maximum(order.backoff, _LEAST) * LOG10
    orders[-1].backoff = np.zeros(len(orders[-1]))
    return NgramModel([word.decode() for word in reader.number], orders)


@dataclass
class Ngrams:
    """The n-grams of an ARPA file whose words all have numbers, sorted by these."""

    orders: list[Order]  # as many as the file has; weights are natural logarithms, float32
    counts: list[int]  # n-grams of each order in the file
    outside: int  # those that were left out
    outside_words: list[str]  # their words without a number


def read_ngrams(path: str | os.PathLike[str], symbols: Mapping[str, int]) -> Ngrams:
    """Read an ARPA file (gzipped or not, `-` is standard input), whose words have the numbers of `symbols`; others are left out.

    Raises UserError, with the line, for the first error: a missing section, counts that do not hold, a number that is none or is
    impossible, an n-gram of the wrong length or given twice, words that are no unigrams, a history that is no n-gram, and the want of <s>
    or </s>.
    """
    reader = _Reader(path, symbols, np.float32)
    base = max(symbols.values(), default=-1) + 1  # words from here on have no number of `symbols`
    orders, places, inside, outside = [], np.zeros(1, np.int32), np.ones(1, bool), 0
    for order in reader.read():
        keep = inside[order.history] & (order.word < base)
        for name in ("logprob", "backoff"):
            setattr(order, name, np.multiply(getattr(order, name), LOG10, dtype=np.float64).astype(np.float32))  # as Kaldi rounds
        if outside or not keep.all():
            order = Order(places[order.history[keep]], order.word[keep], order.logprob[keep], order.backoff[keep])
            outside += int((~keep).sum())
        orders.append(order)
        places, inside = np.cumsum(keep, dtype=np.int32) - np.int32(1), keep
    return Ngrams(orders, reader.counts, outside, sorted(word.decode() for word, number in reader.number.items() if number >= base))


class _Reader:
    """An ARPA file, section by section; of n-grams keys are kept, each of the history's number among the shorter ones and the word.

    Words have the numbers of `symbols`, and others the numbers behind; without it <s> has 0, </s> 1, and the others follow sorted.
    """

    def __init__(self, path: str | os.PathLike[str], symbols: Mapping[str, int] | None, dtype: type[np.floating], most: int = 0,
                 lower_case: bool = False) -> None:
        self.path, self.symbols, self.dtype, self.most, self.lower_case = path, symbols, dtype, most, lower_case
        self.number: dict[bytes, int] = {}  # of each unigram
        self.counts: list[int] = []
        self.last = 0  # the line that was read last
        self._orders: list[Order] = []
        self._shorter: list[np.ndarray] = []  # sorted keys of each order that is complete
        self._words: list[bytes] = []  # unigrams, as they stand in the file
        self._parts: list[tuple[np.ndarray, ...]] = []  # of the section: keys, weights, numbers of lines

    def read(self) -> list[Order]:
        """The n-grams of each order, sorted; logarithms as the file has them."""
        parts = self._split()
        if not any(lines[0].strip() == b"\\data\\" for _, lines in parts):
            raise UserError(f"{self.path} is no ARPA language model: it has no \\data\\ section; make one with utils/train_lm.sh.")
        number, line = self._section(parts, self._count)
        if not self.counts:
            raise self._wrong(number, f"expected `ngram 1=COUNT` after \\data\\, found {_shown(line)}")
        for n, count in enumerate(self.counts[:self.most or None], 1):
            if line != f"\\{n}-grams:".encode():
                raise self._wrong(number, f"expected the section \\{n}-grams:, found {_shown(line)}")
            number, line = self._section(parts, partial(self._take, n))
            found = self._end(n)
            if found != count:
                raise self._wrong(number, f"\\data\\ promises {count} {n}-grams, and {found} are there")
            if n == 1 and (lacking := [word for word in (BOS, EOS) if word.encode() not in self.number]):
                raise self._wrong(number, f"the unigrams lack {lacking[0]}")
        if len(self._orders) == len(self.counts) and line != b"\\end\\":
            raise self._wrong(number, f"expected \\end\\, found {_shown(line)}")
        return self._orders

    def _wrong(self, number: int, what: str) -> UserError:
        return UserError(f"{self.path}, line {number}: {what}.")

    def _split(self) -> Iterator[tuple[int, list[bytes]]]:
        """The number of the first line, and the lines, of parts of the file; a line that begins with a backslash is a part of its own."""
        for lines in blocks_of_lines(self.path):
            if self.lower_case:
                lines = b"".join(lines).decode().lower().encode().split(b"\n")[:len(lines)]
            marks = [i for i, line in enumerate(lines) if line[:1] == b"\\" or (line[:1].isspace() and line.lstrip()[:1] == b"\\")]
            first = 0
            for mark in [*marks, len(lines)]:
                if first < mark:
                    yield self.last + first + 1, lines[first:mark]
                if mark < len(lines):
                    yield self.last + mark + 1, lines[mark:mark + 1]
                first = mark + 1
            self.last += len(lines)

    def _section(self, parts: Iterator[tuple[int, list[bytes]]], take: Callable[[int, list[bytes]], None]) -> tuple[int, bytes]:
        """Hand the lines up to the next that begins with a backslash to `take`; returns that one with its number, or nothing at the end."""
        for number, lines in parts:
            if lines[0].lstrip()[:1] == b"\\":
                return number, lines[0].strip()
            take(number, lines)
        return self.last, b""

    def _count(self, number: int, lines: list[bytes]) -> None:
        """Take lines of the head: `ngram N=COUNT`."""
        for i, line in enumerate(map(bytes.strip, lines), number):
            if line and not line.startswith(b"ngram "):
                raise self._wrong(i, f"expected the section \\1-grams:, found {_shown(line)}" if self.counts else
                                  f"expected `ngram 1=COUNT` after \\data\\, found {_shown(line)}")
            name, _, count = line[6:].partition(b"=")
            if line and (name.strip() != str(len(self.counts) + 1).encode() or not count.strip().isdigit()):
                raise self._wrong(i, f"expected `ngram {len(self.counts) + 1}=COUNT`, found {_shown(line)}")
            if line:
                self.counts.append(int(count))

    def _take(self, n: int, number: int, lines: list[bytes]) -> None:
        """Take lines of the section of order n; raises UserError for the first that is wrong."""
        rows = list(map(bytes.split, lines))
        numbers = np.arange(number, number + len(rows), dtype=np.uint32)
        if not all(rows):
            numbers = numbers[[bool(row) for row in rows]]
            rows = [row for row in rows if row]
        lengths = set(map(len, rows))
        if lengths == {n + 1, n + 2}:
            rows = [row if len(row) == n + 2 else [*row, b"0"] for row in rows]
        width = max(lengths, default=n + 1)
        flat = list(chain.from_iterable(rows))
        try:
            logprob = np.fromiter(map(float, flat[::width]), np.float64, len(rows))
            backoff = np.fromiter(map(float, flat[n + 1::width]), np.float64, len(rows)) if width == n + 2 else np.zeros(len(rows))
            good = lengths <= {n + 1, n + 2} and not (np.isnan(logprob) | (logprob > 1e-4) | np.isnan(backoff) | (backoff == np.inf)).any()
        except ValueError:  # one is no number; or the lines are of other lengths, and the columns none
            good = False
        if not good:
            wrong = [self._faults(n, row) for row in map(bytes.split, lines) if row]
            bad = next(i for i, what in enumerate(wrong) if what)
            self._take(n, number, lines[:int(numbers[bad]) - number])  # an earlier line's error comes first
            raise self._wrong(int(numbers[bad]), wrong[bad])
        if n == 1:
            self._words += flat[1::width]
            keys = np.empty(0, np.int64)  # numbers are given at the end of the section
        else:
            keys = self._keys(numbers, [np.fromiter(map(self.number.get, flat[k::width], repeat(-1)), np.int64, len(rows))
                                        for k in range(1, n + 1)], rows)
        kept = backoff if n < len(self.counts) else backoff[:0]  # nothing backs off from the longest
        self._parts.append((keys, logprob.astype(self.dtype), kept.astype(self.dtype), numbers))

    @staticmethod
    def _faults(n: int, row: list[bytes]) -> str:
        """What is wrong with the fields of a line; empty where nothing is."""
        if len(row) not in (n + 1, n + 2):
            return (f"expected a log-probability, {n} words and perhaps a back-off weight, found "
                    f"{_shown(b' '.join(row))}")
        for k, what in ((0, "a base-10 log-probability, at most 0"), (n + 1, "a back-off weight")):
            try:
                value = float(row[k]) if k < len(row) else 0.0
            except ValueError:
                value = math.nan
            if math.isnan(value) or value == math.inf or (k == 0 and value > 1e-4):
                return f"expected {what}, found {_shown(row[k])}"
        return ""

    def _keys(self, numbers: np.ndarray, words: list[np.ndarray], rows: list[list[bytes]]) -> np.ndarray:
        """The keys of n-grams; raises UserError for the first whose history is no n-gram, or whose last word is no unigram."""
        history, missing = np.zeros(len(rows), np.int64), np.zeros(len(rows), bool)
        for shorter, word in zip(self._shorter, words[:-1], strict=True):
            wanted = (history << 32) | word
            history = np.minimum(np.searchsorted(shorter, wanted), len(shorter) - 1)
            missing |= (shorter[history] != wanted) if len(shorter) else True
        bad = np.flatnonzero(missing | (words[-1] < 0))
        if len(bad):
            n, names = len(words), [name.decode() for name in rows[bad[0]][1:]]
            what = (f"the history {' '.join(names[:n - 1])!r} of this {n}-gram is not among the {n - 1}-grams, so it has no back-off"
                    if missing[bad[0]] else f"the word {names[n - 1]!r} of this {n}-gram is not among the unigrams")
            raise self._wrong(int(numbers[bad[0]]), what)
        return (history << 32) | words[-1]

    def _end(self, n: int) -> int:
        """End a section; returns how many n-grams it had, and raises UserError for one that is given twice."""
        keys, logprob, backoff, numbers = (
            np.concatenate(column) for column in zip((np.empty(0, np.int64), *[np.empty(0, self.dtype)] * 2, np.empty(0, np.uint32)),
                                                     *self._parts, strict=True))
        self._parts = []
        if n == 1:
            keys = self._numbered()
        if n == len(self.counts):
            backoff = np.zeros(len(keys), self.dtype)
        found = len(keys)
        if (keys[1:] <= keys[:-1]).any():
            order = np.argsort(keys, kind="stable")
            keys = keys[order]
            first = np.concatenate([[True], keys[1:] != keys[:-1]])
            if not first.all() and not self.lower_case:
                twins = order[~first]
                text = self._text(int(keys[~first][twins.argmin()]))
                raise self._wrong(int(numbers[twins.min()]), f"the {n}-gram {text!r} is given twice")
            keys, order = keys[first], order[first]
            logprob, backoff = logprob[order], backoff[order]
        self._orders.append(Order((keys >> 32).astype(np.int32), (keys & _WORD).astype(np.int32), logprob, backoff))
        if n < len(self.counts):
            self._shorter.append(keys)
        return found

    def _numbered(self) -> np.ndarray:
        """Give the unigrams numbers; returns those of the section's lines."""
        if self.symbols is None:
            special = [BOS.encode(), EOS.encode()]
            self.number = {word: i for i, word in enumerate([*special, *sorted({*self._words} - {*special})])}
            if missing := {*special} - {*self._words}:
                for word in missing:
                    del self.number[word]
        else:
            behind = max(self.symbols.values(), default=-1) + 1
            for word in self._words:
                if word not in self.number:
                    known = self.symbols.get(word.decode())
                    self.number[word] = behind if known is None else known
                    behind += known is None
        return np.array([self.number[word] for word in self._words], np.int64)

    def _text(self, key: int) -> str:
        """The words of an n-gram behind the last complete order."""
        names = {number: word for word, number in self.number.items()}
        words = [names[key & _WORD]]
        for shorter in self._shorter[::-1]:
            key = int(shorter[key >> 32])
            words.append(names[key & _WORD])
        return b" ".join(words[::-1]).decode()


def _shown(line: bytes) -> str:
    return repr(line.decode() or "the end of the file")


def arpa_parts(model: NgramModel) -> Iterator[bytes]:
    """The ARPA file of a model, in parts of so many n-grams."""
    yield "".join(["\\data\\\n", *(f"ngram {n}={len(order)}\n" for n, order in enumerate(model.orders, 1))]).encode("utf-8")
    names = np.array(model.words, object)
    with Progress("writing n-grams", sum(map(len, model.orders)), "n-gram") as bar:
        for n, order in enumerate(model.orders, 1):
            goes_on = order.backoff != 0
            if n < model.order:
                goes_on[model.orders[n].history] = True
            else:
                goes_on[:] = False
            yield f"\n\\{n}-grams:\n".encode()
            for first in range(0, len(order), _PART):
                part = slice(first, first + _PART)
                words, history = [order.word[part]], order.history[part]
                for shorter in model.orders[:n - 1][::-1]:
                    words.insert(0, shorter.word[history])
                    history = shorter.history[history]
                texts = map(" ".join, zip(*(names[column].tolist() for column in words), strict=True))
                logprob, backoff = np.maximum(order.logprob[part] / LOG10, _LEAST).tolist(), (order.backoff[part] / LOG10).tolist()
                yield "".join([f"{p:.7g}\t{text}\t{b:.7g}\n" if more else f"{p:.7g}\t{text}\n"
                               for p, text, b, more in zip(logprob, texts, backoff, goes_on[part].tolist(), strict=True)]).encode("utf-8")
                bar.update(len(history))
    yield b"\n\\end\\\n"


def write_arpa(model: NgramModel, path: str | os.PathLike[str]) -> None:
    """Write the ARPA file of a model; gzipped where the name ends in `.gz`, to standard output for `-`."""
    if os.fspath(path) == "-":
        sys.stdout.buffer.writelines(arpa_parts(model))
        sys.stdout.buffer.flush()
    elif os.fspath(path).startswith("/dev/"):
        with open(path, "wb") as device:
            device.writelines(arpa_parts(model))
    else:
        with atomic_open(path, "wb") as stream:
            if str(path).endswith(".gz"):
                with gzip.GzipFile("", "wb", fileobj=stream, mtime=0) as packed:
                    packed.writelines(arpa_parts(model))
            else:
                stream.writelines(arpa_parts(model))
