"""Back-off n-gram models as arrays: an n-gram is the number of its history among those one shorter, and its last word.

With h a context and h' the context without its first word,

    p(w | h) = p of the n-gram hw, where the model has it, else backoff(h) p(w | h'),

and backoff(h) is 1 where h is no n-gram of the model. The n-grams of an order are sorted by (history, word), so that many are found at
once by bisection. All n-grams together are numbered as nodes: 0 is no context, then come those of each order; a node that is a context is
a state. A context whose suffix was pruned away backs off to the longest suffix that is there. Logarithms are natural, -inf for zero.

A model of 100 million n-grams fits in a few GB: what is computed of all of them is computed of some million after the other, and what
only questions about texts need (the suffixes of the longest n-grams, sorted keys) is made when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from pykaldist.progress import progress

BOS, EOS = "<s>", "</s>"
_BLOCK = 1 << 20  # n-grams that are looked at together
_WHOLE = 1e-9  # of a probability: a context that leaves less to other words has seen them all


@dataclass
class Order:
    """The n-grams of one order: history's number among those one shorter, last word, log-probability, log of the back-off weight."""

    history: np.ndarray  # integers; zeros for unigrams
    word: np.ndarray  # integers
    logprob: np.ndarray  # float64
    backoff: np.ndarray  # float64; zeros where nothing backs off

    def __len__(self) -> int:
        return len(self.word)


def blocks(history: np.ndarray, contexts: int) -> Iterator[tuple[slice, slice]]:
    """Slices of n-grams sorted by `history`, of some million each, and of the contexts whose n-grams they are: all of a context's."""
    row = context = 0
    while context < contexts:
        end, stop = len(history), contexts
        if row + _BLOCK < len(history):
            stop = int(history[row + _BLOCK])
            if stop == context:  # one context with more n-grams than a block
                stop += 1
            end = int(np.searchsorted(history, stop))
        yield slice(row, end), slice(context, stop)
        row, context = end, stop


@dataclass
class NgramModel:
    """An n-gram model over `words`, of which the first two are <s>, which is not predicted, and </s>.

    `orders[n-1]` has the n-grams of order n, sorted; the history of each is one of them, too (every unigram's is no context).
    """

    words: list[str]
    orders: list[Order]
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.index = {word: i for i, word in enumerate(self.words)}
        self.base = np.concatenate([[0, 1], 1 + np.cumsum([len(order) for order in self.orders])])  # [n]: first node of order n
        self.length = np.repeat(np.arange(self.order + 1, dtype=np.int8), np.diff(self.base))
        self.backoff = np.concatenate([[0.0], *(order.backoff for order in self.orders[:-1])])  # of the nodes that may be states
        self._keys: dict[int, np.ndarray] = {}

    @property
    def order(self) -> int:
        return len(self.orders)

    @cached_property
    def suffix(self) -> np.ndarray:
        """The longest suffix of each node, without its first word, that is a node."""
        return np.concatenate([self._suffix, self.suffixes(self.order)])

    @cached_property
    def _suffix(self) -> np.ndarray:
        """The same of the nodes that may be states, all but the longest n-grams."""
        self._suffix = known = np.zeros(self.base[self.order], np.int64)
        for n in range(2, self.order):
            known[self.base[n]:self.base[n + 1]] = self.suffixes(n)
        return known

    def with_order(self, backoff: np.ndarray, longer: Order) -> NgramModel:
        """The model with longer n-grams, and the back-off weights of those that were the longest."""
        made = NgramModel(self.words, [*self.orders[:-1], replace(self.orders[-1], backoff=backoff), longer])
        made._suffix = self.suffix
        return made

    def suffixes(self, n: int, some: slice = slice(None)) -> np.ndarray:
        """The suffixes of the n-grams of order n, all or some."""
        history, word = self.orders[n - 1].history[some], self.orders[n - 1].word[some]
        found = np.zeros(len(word), np.int64)
        for first in range(0, len(word) if n > 1 else 0, _BLOCK):
            rows = slice(first, first + _BLOCK)
            found[rows] = np.maximum(self.look_up(self._suffix[self.base[n - 1] + history[rows]], word[rows])[1], 0)
        return found

    @property
    def vocabulary(self) -> list[str]:
        """The words that are predicted: all unigrams but <s>."""
        return [self.words[i] for i in self.orders[0].word if i != 0]

    def find(self, n: int, history: np.ndarray, word: np.ndarray) -> np.ndarray:
        """The numbers of n-grams within their order, -1 where the model has none."""
        order = self.orders[n - 1]
        if not len(order) or not len(word):
            return np.full(len(word), -1)
        if n not in self._keys:
            self._keys[n] = order.history.astype(np.int64) * len(self.words) + order.word
        keys, wanted = self._keys[n], history.astype(np.int64) * len(self.words) + word
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where((keys[at] == wanted) & (word >= 0), at, -1)

    def look_up(self, states: np.ndarray, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The log-probabilities of words after contexts, and the nodes of the longest n-grams that were found.

        `states`, `words`: numbers, as many of each; words outside the vocabulary are -1, and have -inf and no node (-1).
        """
        states = np.array(states)
        total, found = np.zeros(len(states)), np.full(len(states), -1)
        for n in range(self.order, 0, -1):
            rows = np.flatnonzero((found < 0) & (self.length[states] == n - 1))
            at = self.find(n, np.maximum(states[rows] - self.base[n - 1], 0), words[rows])
            hit, miss = rows[at >= 0], rows[at < 0]
            total[hit] += self.orders[n - 1].logprob[at[at >= 0]]
            found[hit] = self.base[n] + at[at >= 0]
            total[miss] += self.backoff[states[miss]]
            states[miss] = self._suffix[states[miss]]
        return np.where(found < 0, -np.inf, total), found

    def contexts(self, nodes: np.ndarray) -> np.ndarray:
        """The states that predict the word behind n-grams: those of the highest order give up their first word; none for -1."""
        nodes = np.maximum(nodes, 0)
        return np.where(self.length[nodes] == self.order, self.suffix[nodes], nodes)

    def state(self, context: Sequence[str]) -> int:
        """The state of a context, whose words may be outside the vocabulary."""
        node = np.zeros(1, np.int64)
        for word in context:
            node = self.look_up(self.contexts(node), np.array([self.index.get(word, -1)]))[1]
        return int(self.contexts(node)[0])

    def probability(self, word: str, context: Sequence[str]) -> float:
        """The probability p(word | context). Raises KeyError for a word outside the vocabulary."""
        logprob, node = self.look_up(np.array([self.state(context)]), np.array([self.index[word]]))
        if node[0] < 0 or self.index[word] == 0:
            raise KeyError(word)
        return float(np.exp(logprob[0]))

    def texts(self, n: int) -> list[str]:
        """The n-grams of order n as text, a space between words."""
        last = [self.words[i] for i in self.orders[n - 1].word.tolist()]
        if n == 1:
            return last
        before = self.texts(n - 1)
        return [f"{before[h]} {word}" for h, word in zip(self.orders[n - 1].history.tolist(), last, strict=True)]

    def seen_and_below(self, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of each n-gram of order n - 1 the sums over the words w behind it of p(w | h) and of p(w | h'), and how many words those are.

        Counted are the n-grams of order n that the model has; <s> is none of the words.
        """
        order, size = self.orders[n - 1], 1 if n == 1 else len(self.orders[n - 2])
        seen, lower, kinds = (np.zeros(size) for _ in range(3))
        for rows, contexts in blocks(order.history, size):
            history, counts = order.history[rows] - contexts.start, order.word[rows] != 0
            many = contexts.stop - contexts.start
            below = np.zeros(len(history)) if n == 1 else np.exp(self.lower(n, rows))
            seen[contexts] = np.bincount(history, np.exp(order.logprob[rows]) * counts, many)
            lower[contexts], kinds[contexts] = np.bincount(history, below * counts, many), np.bincount(history, counts, many)
        return seen, lower, kinds

    def lower(self, n: int, rows: slice = slice(None)) -> np.ndarray:
        """The log-probabilities p(w | h') of the n-grams hw of order n >= 2, all or some."""
        order = self.orders[n - 1]
        return self.look_up(self._suffix[self.base[n - 1] + order.history[rows]], order.word[rows])[0]

    def worst_sum(self) -> float:
        """The greatest deviation from one, over all contexts, of a context's probabilities summed over the vocabulary."""
        worst = abs(1 - float(self.seen_and_below(1)[0][0]))
        for n in progress(range(2, self.order + 1), "checking probabilities", unit="order"):
            seen, below, kinds = self.seen_and_below(n)
            sums = seen + np.exp(self.orders[n - 2].backoff) * (1 - below)
            worst = max(worst, float(np.abs(1 - sums)[kinds > 0].max(initial=0.0)))
        return worst

    def normalised(self, only: list[np.ndarray] | None = None) -> NgramModel:
        """The model with the back-off weights by which every context sums to one, from the shortest to the longest.

        A context that has seen every word, or that leaves nothing of its words to the rest, is scaled, and backs off with what is left.
        `only[n-1]` says which n-grams of order n may get another weight (all where it is not given).
        """
        orders: list[Order] = []
        for n, order in enumerate(self.orders, 1):
            orders.append(Order(order.history, order.word, order.logprob.copy(), np.zeros(len(order))))
            if n == 1:
                continue
            seen, below, kinds = NgramModel(self.words, orders).seen_and_below(n)
            rest, room = 1 - seen, 1 - below
            whole = (room < _WHOLE) & (kinds > 0)
            small = (rest < _WHOLE) & (kinds > 0) & ~whole
            left = np.where(small, _WHOLE, rest)
            scale = np.where(whole, 1.0, 1 - left) / np.where(kinds > 0, np.where(seen > 0, seen, 1.0), 1.0)
            with np.errstate(divide="ignore", invalid="ignore"):
                backoff = np.where(kinds == 0, 0.0, np.where(whole, 0.0, np.log(left) - np.log(room)))
            change = np.ones(len(rest), bool) if only is None else only[n - 2]
            orders[-2].backoff = np.where(change, backoff, self.orders[n - 2].backoff)
            rescaled = (change & (whole | small))[order.history]
            orders[-1].logprob[rescaled] += np.log(scale[order.history[rescaled]])
        return NgramModel(self.words, orders, list(self.notes))

    def kept(self, keep: list[np.ndarray]) -> NgramModel:
        """The model with the n-grams whose place in `keep[n-1]` is true, and those that are a history of such; unigrams all stay.

        Back-off weights stay as they are; highest orders without n-grams go.
        """
        keep = [np.array(one) for one in keep]
        keep[0][:] = True
        for n in range(self.order, 1, -1):
            keep[n - 2][self.orders[n - 1].history[keep[n - 1]]] = True
        orders, places = [], np.zeros(1, np.int64)
        for order, one in zip(self.orders, keep, strict=True):
            if not one.any():
                break
            orders.append(Order(places[order.history[one]], order.word[one], order.logprob[one], order.backoff[one]))
            places = np.cumsum(one) - 1
        orders[-1].backoff = np.zeros(len(orders[-1]))
        return NgramModel(self.words, orders, list(self.notes))
