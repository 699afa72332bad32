"""ARPA files of n-gram models, read into arrays and written: whole sections at a time."""

from __future__ import annotations

import gzip
import math
import os
import sys
from collections.abc import Iterator

import numpy as np

from pykaldist.errors import UserError
from pykaldist.io.atomic import atomic_open
from pykaldist.lm.model import BOS, EOS, NgramModel, Order
from pykaldist.lm.texts import read_text

LOG10 = math.log(10.0)
_PART = 100_000  # n-grams that are written at a time
_LEAST = -99.0  # what stands for the logarithm of zero


def read_arpa(path: str | os.PathLike[str], most: int = 0, lower_case: bool = False) -> NgramModel:
    """Read an ARPA file (gzipped or not, `-` is standard input); of its orders the first `most`, all for 0.

    With `lower_case` the words become lower case, and of n-grams that are one then the first counts. Raises UserError, with the line, for
    what is no ARPA file: sections or counts that do not hold, numbers that are none, n-grams given twice or whose history is not there.
    """
    return _Reader(path, most, lower_case).model()


class _Reader:
    """The parts of an ARPA file, from which a model is made."""

    def __init__(self, path: str | os.PathLike[str], most: int, lower_case: bool) -> None:
        self.path, self.most, self.lower_case = path, most, lower_case
        text = read_text(path)
        if lower_case:
            text = text.lower()
        begin = 0 if text.startswith("\\data\\") else text.find("\n\\data\\") + 1
        if not text.startswith("\\data\\", begin):
            raise UserError(f"{path} is no ARPA language model: it has no \\data\\ section.")
        self.lines = [line.strip() for line in text.split("\n")]
        self.start = self.lines.index("\\data\\") + 1
        marks = [i for i, line in enumerate(self.lines) if i >= self.start and line[:1] == "\\"]
        self.counts: list[int] = []
        for i in range(self.start, marks[0] if marks else len(self.lines)):
            if self.lines[i]:
                name, _, count = self.lines[i].removeprefix("ngram ").partition("=")
                if not self.lines[i].startswith("ngram ") or name.strip() != str(len(self.counts) + 1) or not count.strip().isdigit():
                    raise self._wrong(i, f"expected `ngram {len(self.counts) + 1}=COUNT`, found {self.lines[i]!r}")
                self.counts.append(int(count))
        if not self.counts:
            raise self._wrong(self.start, "expected `ngram 1=COUNT` after \\data\\")
        expected = [*(f"\\{n}-grams:" for n in range(1, len(self.counts) + 1)), "\\end\\"]
        for i, wanted in enumerate(expected):
            found = self.lines[marks[i]] if i < len(marks) else ""
            if found != wanted:
                raise self._wrong(marks[i] if found else len(self.lines) - 1,
                                  f"expected {wanted}, found {found or 'the end of the file'!r}")
        self.marks = marks

    def _wrong(self, i: int, what: str) -> UserError:
        return UserError(f"{self.path}, line {i + 1}: {what}.")

    def model(self) -> NgramModel:
        """The model that the file holds."""
        numbers, fields = self._fields(1)
        names = fields[:, 1].tolist()
        if not self.lower_case:
            self._no_twins(1, numbers, np.unique(fields[:, 1], return_index=True)[1])
        for word in (BOS, EOS):
            if word not in names:
                raise self._wrong(self.marks[1] - 1, f"the unigrams lack {word}")
        words = [BOS, EOS, *sorted(set(names) - {BOS, EOS})]
        index = {word: i for i, word in enumerate(words)}
        orders: list[Order] = []
        for n in range(1, min(self.most or len(self.counts), len(self.counts)) + 1):
            if n > 1:
                numbers, fields = self._fields(n)
            if not len(fields):
                break
            orders.append(self._order(n, numbers, fields, orders, index))
        orders[-1].backoff = np.zeros(len(orders[-1]))
        return NgramModel(words, orders)

    def _fields(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """The lines' numbers and the fields of the n-grams of one order: log-probability, words, back-off weight (0 where absent)."""
        first, last = self.marks[n - 1] + 1, self.marks[n]
        numbers = np.array([i for i in range(first, last) if self.lines[i]], np.int64)
        if len(numbers) != self.counts[n - 1]:
            raise self._wrong(last - 1, f"\\data\\ promises {self.counts[n - 1]} {n}-grams, and {len(numbers)} are there")
        rows = [self.lines[i].split() for i in numbers.tolist()]
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        if ((lengths != n + 1) & (lengths != n + 2)).any():
            bad = int(np.flatnonzero((lengths != n + 1) & (lengths != n + 2))[0])
            raise self._wrong(int(numbers[bad]), f"expected a log-probability, {n} words and perhaps a back-off weight, "
                                                 f"found {self.lines[numbers[bad]]!r}")
        for bad in np.flatnonzero(lengths == n + 1).tolist():
            rows[bad].append("0")
        return numbers, np.array(rows, object).reshape(len(rows), n + 2)

    def _order(self, n: int, numbers: np.ndarray, fields: np.ndarray, orders: list[Order], index: dict[str, int]) -> Order:
        logprob, backoff = self._values(numbers, fields[:, 0], False), self._values(numbers, fields[:, -1], True)
        history = np.zeros(len(fields), np.int64)
        for k in range(1, n + 1):
            word = np.fromiter((index.get(name, -1) for name in fields[:, k]), np.int64, len(fields))
            if (word < 0).any():
                bad = int(np.flatnonzero(word < 0)[0])
                raise self._wrong(int(numbers[bad]), f"the word {fields[bad, k]!r} of this {n}-gram is not among the unigrams")
            if k < n:
                order = orders[k - 1]
                keys, wanted = order.history * len(index) + order.word, history * len(index) + word
                history = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
                if (keys[history] != wanted).any():
                    bad = int(np.flatnonzero(keys[history] != wanted)[0])
                    raise self._wrong(int(numbers[bad]), f"the history {' '.join(fields[bad, 1:n])!r} of this {n}-gram is not among the "
                                                         f"{n - 1}-grams, so it has no back-off")
        unique, first = np.unique(history * len(index) + word, return_index=True)
        if not self.lower_case:
            self._no_twins(n, numbers, first)
        return Order(unique // len(index), unique % len(index), logprob[first], backoff[first])

    def _no_twins(self, n: int, numbers: np.ndarray, first: np.ndarray) -> None:
        if len(first) != len(numbers):
            twin = np.setdiff1d(np.arange(len(numbers)), first)[0]
            raise self._wrong(int(numbers[twin]), f"the {n}-gram {' '.join(self.lines[numbers[twin]].split()[1:n + 1])!r} is given twice")

    def _values(self, numbers: np.ndarray, texts: np.ndarray, backoff: bool) -> np.ndarray:
        """Numbers of a column as natural logarithms."""
        try:
            values = texts.astype(float)
        except ValueError:
            values = np.array([_number(text) for text in texts])
        bad = np.flatnonzero(np.isnan(values) | (values == np.inf) | (False if backoff else values > 1e-4))
        if len(bad):
            what = "a back-off weight" if backoff else "a base-10 log-probability, at most 0"
            raise self._wrong(int(numbers[bad[0]]), f"expected {what}, found {texts[bad[0]]!r}")
        if backoff:
            return np.maximum(values, _LEAST) * LOG10
        return np.where(values <= _LEAST, -np.inf, np.minimum(values, 0.0) * LOG10)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def arpa_parts(model: NgramModel) -> Iterator[bytes]:
    """The ARPA file of a model, in parts of so many n-grams."""
    yield "".join(["\\data\\\n", *(f"ngram {n}={len(order)}\n" for n, order in enumerate(model.orders, 1))]).encode("utf-8")
    names = np.array(model.words, object)
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
