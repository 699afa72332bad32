"""The phone language model of the denominator: an n-gram model without smoothing, and without back-off arcs.

The model is a set of states, one for each history of at most `ngram_order` - 1 phones; 0 stands for the beginning of an utterance, and as
a next phone for its end. Out of a history h with the count c(h) goes phone p with the probability c(h, p) / c(h), the maximum-likelihood
estimate: what was never seen after h cannot come after it, which keeps the graph small.

Too many states are pruned by a hard back-off. A history of at least `no_prune_ngram_order` phones gives its counts to the history without
the oldest phone, and is no state any more; ways into it lead there. This lowers the log-likelihood of the data,
L(h) = sum over p of c(h, p) log(c(h, p) / c(h)), by

    change(h) = L(h and its back-off together) - L(h) - L(its back-off), at most 0,

and the history with the change nearest to 0 goes first, until there are `num_extra_lm_states` states above those of order
`no_prune_ngram_order`. A back-off without counts takes them over at no loss (of these the rarest history goes first). A history must stay
while other histories may still back off to it, and while a longer history that is left can only be reached from it.

To give Kaldi's states, this follows Kaldi's chain/language-model.cc in what decides between near equals: changes are of single precision;
they are computed anew when they come up, and wait again where they have become different by more than 1 in 1000; and the queue is made anew
at each quarter of the way.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from pykaldist.errors import UserError
from pykaldist.io.fst import Fst
from pykaldist.options import option

_STAGES = 4  # of pruning; at the beginning of each the queue is made anew
_TOLERANCE = np.float32(0.001)  # within which a change that waited in the queue still holds

History = tuple[int, ...]


@dataclass
class PhoneLmOptions:
    """The options of Kaldi's chain-est-phone-lm."""

    ngram_order: int = option(4, "order of the phone language model")
    no_prune_ngram_order: int = option(3, "the order whose n-grams are all kept")
    num_extra_lm_states: int = option(1000, "states above those of the order that is kept")

    def __post_init__(self) -> None:
        if not 1 <= self.no_prune_ngram_order <= self.ngram_order or self.ngram_order < 2:
            raise UserError(f"--no-prune-ngram-order {self.no_prune_ngram_order} --ngram-order {self.ngram_order}: expected an order of at "
                            "least 1, and one that is at least 2 and not below it.")
        if self.num_extra_lm_states < 0:
            raise UserError(f"--num-extra-lm-states {self.num_extra_lm_states} is negative.")


@dataclass
class _State:
    history: History
    backoff: int = -1
    counts: dict[int, int] = field(default_factory=dict)
    total: int = 0
    total_with_parents: int = 0  # with the counts of all states that back off to it, directly or not
    allowed: bool = False  # may back off

    def add(self, counts: dict[int, int]) -> None:
        for phone, count in counts.items():
            self.counts[phone] = self.counts.get(phone, 0) + count
            self.total += count


def _log_like(counts: dict[int, int], total: int) -> np.float32:
    return np.float32(sum(math.log(counts[phone] / total) * counts[phone] for phone in sorted(counts)))


class _Estimator:
    """The states of a phone language model while it is made."""

    def __init__(self, options: PhoneLmOptions) -> None:
        self.options = options
        self.states: list[_State] = []
        self.number: dict[History, int] = {}
        self.queue: list[tuple[np.float32, int]] = []

    def state(self, history: History) -> int:
        """The number of a history's state, made where it is new; the states that it backs off to are made after it."""
        if history not in self.number:
            self.number[history] = number = len(self.states)
            self.states.append(_State(history))
            if len(history) >= self.options.no_prune_ngram_order:
                self.states[number].backoff = self.state(history[1:])
        return self.number[history]

    def count(self, phones: Sequence[int]) -> None:
        history: History = (0,)
        for phone in [*phones, 0]:
            self.states[self.state(history)].add({phone: 1})
            history = (*history, phone)[-(self.options.ngram_order - 1):]

    def prune(self) -> None:
        for state in self.states:
            ancestor: _State | None = state
            while ancestor is not None:
                ancestor.total_with_parents += state.total
                ancestor = self.states[ancestor.backoff] if ancestor.backoff >= 0 else None
        self.active = sum(state.total > 0 for state in self.states)
        kept = sum(len(state.history) == self.options.no_prune_ngram_order - 1 for state in self.states)
        surplus = self.active - kept - self.options.num_extra_lm_states
        goals = [self.active - surplus * stage // _STAGES for stage in range(1, _STAGES + 1)] if surplus > 0 else []
        for goal in goals:
            self.queue = []
            for number, state in enumerate(self.states):
                state.allowed = self._may_back_off(state)
                if state.allowed:
                    self._push(number)
            while self.active > goal and self.queue:
                waited, number = heapq.heappop(self.queue)
                change = self._change(self.states[-number])
                if abs(-waited - change) <= _TOLERANCE * (abs(waited) + abs(change)):
                    self._back_off(self.states[-number])
                else:
                    heapq.heappush(self.queue, (-change, number))

    def _push(self, number: int) -> None:
        heapq.heappush(self.queue, (-self._change(self.states[number]), -number))

    def _change(self, state: _State) -> np.float32:
        backoff = self.states[state.backoff]
        if backoff.total == 0:
            return np.float32(-1e-15 * state.total)
        both = _State(())
        both.add(backoff.counts)
        both.add(state.counts)
        change = _log_like(both.counts, both.total) - _log_like(state.counts, state.total) - _log_like(backoff.counts, backoff.total)
        return min(change, np.float32(0.0))

    def _may_back_off(self, state: _State) -> bool:
        if len(state.history) < self.options.no_prune_ngram_order or state.total != state.total_with_parents or state.total == 0:
            return False
        longer = (self.number.get((*state.history, phone), -1) for phone in state.counts if phone)
        return all(number < 0 or self.states[number].total_with_parents == 0 for number in longer)

    def _back_off(self, state: _State) -> None:
        backoff = self.states[state.backoff]
        self.active -= backoff.total != 0
        backoff.add(state.counts)
        state.counts, state.total, state.total_with_parents, state.allowed = {}, 0, 0, False
        before, backoff.allowed = backoff.allowed, self._may_back_off(backoff)
        if backoff.allowed and not before:
            self._push(state.backoff)

    def _nearest(self, history: History) -> int:
        """The state of the longest end of a history that is one."""
        while history not in self.number or self.states[self.number[history]].total == 0:
            history = history[1:]
        return self.number[history]

    def fst(self) -> Fst:
        active = [state for state in self.states if state.total]
        number = {id(state): n for n, state in enumerate(active)}
        final = np.full(len(active), np.inf, np.float32)
        arcs: list[tuple[int, int, float, int]] = []
        for source, state in enumerate(active):
            for phone in sorted(state.counts):
                cost = -math.log(state.counts[phone] / state.total)
                if phone == 0:
                    final[source] = cost
                else:
                    arcs.append((source, phone, cost, number[id(self.states[self._nearest((*state.history, phone))])]))
        source_of, label, weight, nextstate = map(np.array, zip(*arcs, strict=True))
        return Fst.from_arcs(number[id(self.states[self._nearest((0,))])], final, source_of, label, label, weight, nextstate)


def estimate_phone_lm(sentences: Iterable[Sequence[int]], options: PhoneLmOptions) -> Fst:
    """Make the phone language model of phone sequences, an acceptor whose arcs of a state are sorted by phone (phone_lm.fst).

    Raises UserError where there is no phone, or one that is not positive.
    """
    estimator = _Estimator(options)
    phones = 0
    for number, sentence in enumerate(sentences, 1):
        if any(phone < 1 for phone in sentence):
            raise UserError(f"phone sequence {number} has phone {min(sentence)}; phones are numbered from 1.")
        phones += len(sentence)
        estimator.count(sentence)
    if not phones:
        raise UserError("a phone language model needs at least one phone, and there is none; check the alignments.")
    estimator.prune()
    return estimator.fst()
