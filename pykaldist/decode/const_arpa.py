"""Kaldi's ConstArpaLm files (`G.carpa`): back-off n-gram models in one block of memory, built from ARPA files, asked without loading them.

An n-gram that has longer ones, or a back-off weight, is a state: log-probability, back-off weight, number of children, and the children,
each a word and a number. An even number is the bits of a leaf's log-probability, whose last bit is cleared; an odd one 2 d + 1 the distance
d to the child's state, or -(2 i + 1) entry i of a table of distant ones. Unigrams are states in any case, and are found by their word.
States follow each other as words do in a dictionary, so that what is asked together lies together. Logarithms are natural.
Source: the format as Kaldi's src/lm/const-arpa-lm.cc writes and reads it.

The n-grams of each order are sorted arrays of (number of the history among the shorter ones, word), as one key; the histories of all
n-grams are found by bisection, all at once.
"""

from __future__ import annotations

import itertools
import math
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pykaldist.errors import UserError
from pykaldist.io.atomic import atomic_open
from pykaldist.lm.arpa import read_ngrams
from pykaldist.lm.model import Order
from pykaldist.progress import Progress

FARTHEST = 2**30 - 1  # distance to a child, in numbers of 4 bytes
_BLOCK = 1 << 20  # n-grams that are put in their states at once
_CURE = "make it with utils/build_const_arpa_lm.sh"


def build_const_arpa(arpa: str | os.PathLike[str], symbols: Mapping[str, int], unk: int, path: str | os.PathLike[str]) -> list[int]:
    """Write the ConstArpaLm of an ARPA file (gzipped if it ends in `.gz`); returns the number of n-grams kept of each order.

    `symbols`: the numbers of words.txt; n-grams with others are left out. `unk`: the word that stands for those the model does not have,
    or -1. Raises UserError for errors in the file, and where <s>, </s> or the unknown word have no number.
    """
    for name in ("<s>", "</s>"):
        if symbols.get(name, 0) <= 0:
            raise UserError(f"words.txt gives {name} no number; make the language directory with utils/prepare_lang.sh.")
    orders = read_ngrams(arpa, symbols).orders
    while len(orders) > 1 and not len(orders[-1]):  # all were left out
        orders.pop()
    num_words = int(orders[0].word.max()) + 1
    if not -1 <= unk < num_words or unk == 0:
        raise UserError(f"the unknown word has the number {unk}, and {arpa} no word of such a number; add it to the language model.")
    states, unigrams, distant = _states(orders, num_words)
    with atomic_open(path, "wb") as stream:
        stream.write(b"\0B<ConstArpaLm> <LmInfo> ")
        stream.write(b"".join(struct.pack("<bi", 4, value) for value in (symbols["<s>"], symbols["</s>"], unk, len(orders))))
        stream.write(b"</LmInfo> <LmStates> " + struct.pack("<bq", 8, len(states)))
        stream.write(states.data)
        stream.write(b"</LmStates> <LmUnigram> " + struct.pack("<bi", 4, len(unigrams)))
        stream.write(unigrams.tobytes())
        stream.write(b"</LmUnigram> <LmOverflow> " + struct.pack("<bi", 4, len(distant)))
        stream.write(distant.tobytes())
        stream.write(b"</LmOverflow> </ConstArpaLm> ")
    return [len(order) for order in orders]


def _states(orders: list[Order], num_words: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The block of states, the place of each word's unigram plus 1, or 0, and the places plus 1 of distant children."""
    shorter = orders[: max(len(orders) - 1, 1)]  # the n-grams of the highest order are leaves, but unigrams
    children = [np.bincount(longer.history, minlength=len(order)) for order, longer in itertools.pairwise(orders)]
    if not children:
        children = [np.zeros(len(orders[0]), np.int64)]
    places, size = _places(shorter, children)
    states = np.zeros(size, np.int32)
    distant: list[int] = []
    with Progress("states of G.carpa", sum(map(len, orders[1:])), "n-gram") as bar:
        for n, (order, at, number) in enumerate(zip(shorter, places, children, strict=True)):
            own = at[at >= 0]
            columns: list[np.ndarray] = [order.logprob.view(np.int32), order.backoff.view(np.int32), number]
            for column, values in enumerate(columns):
                states[own + column] = values[at >= 0]
            if n + 1 == len(orders):
                break
            longer, first = orders[n + 1], np.cumsum(number) - number
            for begin in range(0, len(longer), _BLOCK):
                rows = slice(begin, begin + _BLOCK)
                history = longer.history[rows]
                parent = at[history]
                entry = parent + 3 + 2 * (np.arange(begin, begin + len(history)) - first[history])
                to = places[n + 1][rows] if n + 1 < len(shorter) else np.full(len(history), -1, np.int64)
                info = np.where(to < 0, longer.logprob[rows].view(np.int32) & ~1, 2 * np.minimum(to - parent, FARTHEST) + 1)
                far = np.flatnonzero((to >= 0) & (to - parent > FARTHEST))
                info[far] = -(2 * (len(distant) + np.arange(len(far))) + 1)
                distant += (to[far] + 1).tolist()
                states[entry], states[entry + 1] = longer.word[rows], info
                bar.update(len(history))
    unigrams = np.zeros(num_words, np.int64)
    unigrams[orders[0].word] = places[0] + 1
    return states, unigrams, np.array(distant, np.int64)


def _places(shorter: list[Order], children: list[np.ndarray]) -> tuple[list[np.ndarray], int]:
    """Where the state of each n-gram begins, -1 for a leaf, and the numbers of all states together.

    Behind a state come those of the n-grams that begin with it, each with all that begin with that one; so the sum of their sizes says
    where the next one begins.
    """
    sizes = [np.where((order.backoff != 0) | (number > 0) | (n == 0), 3 + 2 * number, 0)
             for n, (order, number) in enumerate(zip(shorter, children, strict=True))]
    whole = [size.copy() for size in sizes]  # with all that is behind
    for n in range(len(shorter) - 1, 0, -1):
        whole[n - 1] += np.bincount(shorter[n].history, whole[n], len(shorter[n - 1])).astype(np.int64)
    places: list[np.ndarray] = []
    for n, (order, size) in enumerate(zip(shorter, whole, strict=True)):
        before = np.cumsum(size) - size
        if n:
            first = np.cumsum(children[n - 1]) - children[n - 1]
            before += (places[-1] + sizes[n - 1])[order.history] - before[first[order.history]]
        places.append(before)
    return [np.where(size > 0, place, -1) for size, place in zip(sizes, places, strict=True)], int(whole[0].sum())


History = tuple[int, ...]


class ConstArpaLm:
    """A ConstArpaLm file as a deterministic automaton; its states are histories, the words that matter to what follows.

    The file is mapped into memory: only what is asked for is read. Raises UserError where it is no such file, or damaged.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        try:
            content = np.memmap(self._path, np.uint8, "r")
        except FileNotFoundError as error:
            raise UserError(f"{path} does not exist; {_CURE}.") from error
        except ValueError as error:
            raise UserError(f"{path} is empty; {_CURE}.") from error
        self._content, self._at = content, 0
        self._expect(b"\0B<ConstArpaLm> <LmInfo> ")
        self.bos, self.eos, self.unk, self.order = (self._integer() for _ in range(4))
        self._expect(b"</LmInfo> <LmStates> ")
        self._states = self._array("<i4", self._integer(8))
        self._expect(b"</LmStates> <LmUnigram> ")
        self._unigrams = self._array("<i8", self._integer())
        self._expect(b"</LmUnigram> <LmOverflow> ")
        self._distant = self._array("<i8", self._integer())
        self._expect(b"</LmOverflow> </ConstArpaLm> ")
        if not (self.order > 0 and 0 < self.bos < len(self._unigrams) and 0 < self.eos < len(self._unigrams)
                and self.unk < len(self._unigrams) and self._unigrams.min() >= 0 and self._unigrams.max() <= len(self._states)):
            raise self._damaged()
        self._floats = self._states.view("<f4")
        self._known: dict[tuple[History, int], tuple[History, float] | None] = {}
        self.start: History = (self.bos,)

    def step(self, history: History, word: int) -> tuple[History, float] | None:
        """The history after `word`, and its cost (negative natural logarithm); None where it has no probability."""
        key = (history, word)
        if key not in self._known:
            self._known[key] = self._step(history, word)
        return self._known[key]

    def final(self, history: History) -> float:
        """The cost of the sentence's end."""
        return -self._logprob(self._named(self.eos), history)

    def _step(self, history: History, word: int) -> tuple[History, float] | None:
        word = self._named(word)
        logprob = self._logprob(word, history)
        if logprob == -math.inf:
            return None
        after = (*history, word)[max(0, len(history) + 2 - self.order) :] if self.order > 1 else ()
        while after and not self._goes_on(after):
            after = after[1:]
        return after, -logprob

    def _named(self, word: int) -> int:
        """The word, or that for unknown ones."""
        known = 0 <= word < len(self._unigrams) and self._unigrams[word] > 0
        return word if known or self.unk < 0 else self.unk

    def _logprob(self, word: int, history: History) -> float:
        total = 0.0
        history = history[max(0, len(history) + 1 - self.order) :]
        while history:
            state = self._state(history)
            if state is not None:
                info = self._child(state, word)
                if info is not None:
                    to = self._to(state, info)
                    return total + float(self._floats[to] if to is not None else np.int32(info).view(np.float32))
                total += float(self._floats[state + 1])
            history = history[1:]
        place = int(self._unigrams[word]) if 0 <= word < len(self._unigrams) else 0
        return total + float(self._floats[place - 1]) if place else -math.inf

    def _goes_on(self, history: History) -> bool:
        state = self._state(history)
        return state is not None and bool(self._states[state + 2] > 0)

    def _state(self, history: History) -> int | None:
        """The place of a history's state."""
        first = history[0]
        if not (0 <= first < len(self._unigrams) and self._unigrams[first]):
            return None
        state: int | None = int(self._unigrams[first]) - 1
        for word in history[1:]:
            assert state is not None
            info = self._child(state, word)
            state = None if info is None else self._to(state, info)
            if state is None:
                return None
        return state

    def _child(self, state: int, word: int) -> int | None:
        """The number beside a child."""
        begin, end = state + 3, state + 3 + 2 * int(self._states[state + 2])
        if not begin <= end <= len(self._states):
            raise self._damaged()
        words = self._states[begin:end:2]
        at = int(np.searchsorted(words, word))
        return int(self._states[begin + 2 * at + 1]) if at < len(words) and words[at] == word else None

    def _to(self, state: int, info: int) -> int | None:
        """The place of a child's state; None for a leaf."""
        if info % 2 == 0:
            return None
        number = -info // 2
        if info < 0 and number >= len(self._distant):
            raise self._damaged()
        to = state + info // 2 if info > 0 else int(self._distant[number]) - 1
        if not 0 <= to <= len(self._states) - 3:
            raise self._damaged()
        return to

    # Reading the file.

    def _damaged(self) -> UserError:
        return UserError(f"{self._path} is damaged, or no ConstArpaLm; {_CURE}.")

    def _take(self, size: int) -> Any:
        if size < 0 or self._at + size > len(self._content):
            raise self._damaged()
        self._at += size
        return self._content[self._at - size : self._at]

    def _expect(self, text: bytes) -> None:
        if self._take(len(text)).tobytes() != text:
            raise self._damaged()

    def _integer(self, size: int = 4) -> int:
        if self._take(1)[0] != size:
            raise self._damaged()
        return int.from_bytes(self._take(size).tobytes(), "little", signed=True)

    def _array(self, dtype: str, count: int) -> np.ndarray:
        begin = self._at
        self._take(count * np.dtype(dtype).itemsize)
        return np.memmap(self._path, dtype, "r", offset=begin, shape=(count,)) if count else np.empty(0, dtype)
