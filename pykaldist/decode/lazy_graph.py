"""A decoding graph with a large language model that is composed with it while it is searched, state by state, as far as the search goes.

The graph is made of a small language model, at best one of single words, whose costs lie near the beginning of each word and so guide the
search. Where a path takes a word, the small model's cost of it is taken off and the large model's put on, so that a path costs what it
would cost in a graph of the large model, which is many times as large and is never made. A state is a pair (state of the graph, states
of both models); its arcs are made when it is first reached, and kept for the frames and utterances that follow.

A model backs off only where it lacks the word in its history, as ARPA files mean it. (In a graph backing off is an arc that may always be
taken; where that is cheaper, a path through the graph costs less than its sentence.)
Source: T. Hori, C. Hori, Y. Minami, A. Nakamura, "Efficient WFST-based one-pass decoding with on-the-fly hypothesis rescoring in extremely
large vocabulary continuous speech recognition", IEEE Transactions on Audio, Speech, and Language Processing 15(4), 2007; as in Kaldi's
LatticeBiglmFasterDecoder.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, TypeVar

import numpy as np

from pykaldist.decode import search
from pykaldist.decode.decoder import DecoderOptions, LatticeDecoder
from pykaldist.decode.search_graph import SearchGraph
from pykaldist.errors import UserError
from pykaldist.io.fst import Fst
from pykaldist.io.fst_compose import longer, number_of, slot_of, sort_arcs
from pykaldist.kernels import kernel

D = TypeVar("D", bound="GrowingDecoder")

MOST_ARCS = 1 << 22  # arcs that are kept from one utterance to the next: 67 MB
UNMADE = -1  # where a state's arcs would begin


class BackoffModel(NamedTuple):
    """An n-gram model as arrays. A state is a history, its words sorted; for one it lacks, it backs off to another state."""

    offset: np.ndarray  # int64 [S + 1]
    word: np.ndarray  # int32 [A]
    weight: np.ndarray  # float32 [A], costs
    nextstate: np.ndarray  # int32 [A]
    backoff: np.ndarray  # int32 [S], -1 where there is none
    backoff_weight: np.ndarray  # float32 [S]
    final: np.ndarray  # float32 [S], with backing off; inf where the sentence cannot end


def backoff_model(grammar: Fst, backoff_label: int, what: str) -> BackoffModel:
    """Make a model of G.fst, whose back-off arcs have `backoff_label` (#0) or no label; `what` names it in messages.

    Sorts the arcs of `grammar`. Raises UserError where a state has two ways to back off, or two arcs of one word.
    """
    source = grammar.source
    backs_off = (grammar.ilabel == 0) | (grammar.ilabel == backoff_label)
    backoff, weight = np.full(grammar.num_states, -1, np.int32), np.zeros(grammar.num_states, np.float32)
    if len(np.unique(source[backs_off])) < backs_off.sum():
        raise UserError(f"{what} has a state with several back-off arcs; it must be G.fst of an n-gram model (utils/format_lm.sh).")
    backoff[source[backs_off]], weight[source[backs_off]] = grammar.nextstate[backs_off], grammar.weight[backs_off]
    words = ~backs_off
    offset = np.zeros(grammar.num_states + 1, np.int64)
    np.cumsum(np.bincount(source[words], minlength=grammar.num_states), out=offset[1:])
    columns = [column[words] for column in (grammar.ilabel, grammar.olabel, grammar.weight, grammar.nextstate)]
    sort_arcs(offset, *columns)
    if ((np.diff(source[words]) == 0) & (np.diff(columns[0]) == 0)).any():
        raise UserError(f"{what} has a state with two arcs of one word; it must be G.fst of an n-gram model (utils/format_lm.sh).")
    final = grammar.final.copy()
    for _ in range(grammar.num_states):
        open_end = np.isinf(final) & (backoff >= 0)
        ended = np.where(open_end, weight + final[backoff], final).astype(np.float32)
        if np.array_equal(ended, final):
            break
        final = ended
    return BackoffModel(offset, columns[0], columns[2], columns[3], backoff, weight, final)


@kernel
def _step(model: tuple[np.ndarray, ...], state: int, word: int) -> tuple[Any, Any]:
    """The model's state after a word, and the cost; the state is -1 where the model does not have the word."""
    offset, words, weight, nextstate, backoff, backoff_weight, _ = model
    cost = np.float32(0)
    while state >= 0:
        low, end = offset[state], offset[state + 1]
        high = end
        while low < high:
            middle = (low + high) // 2
            if words[middle] < word:
                low = middle + 1
            else:
                high = middle
        if low < end and words[low] == word:
            return np.int64(nextstate[low]), cost + weight[low]
        cost += backoff_weight[state]
        state = np.int64(backoff[state])
    return np.int64(-1), np.float32(np.inf)


@kernel
def _difference(old: tuple[np.ndarray, ...], new: tuple[np.ndarray, ...], pair: int, word: int) -> tuple[Any, Any]:
    """The models' states after a word, as a pair, and what the new one's cost is more than the old one's; -1: one lacks the word."""
    size = np.int64(len(new[6]))
    old_state, old_cost = _step(old, pair // size, word)
    new_state, new_cost = _step(new, pair % size, word)
    if old_state < 0 or new_state < 0:
        return np.int64(-1), np.float32(0)
    return old_state * size + new_state, new_cost - old_cost


@kernel
def more_states(states: np.ndarray) -> np.ndarray:
    """The states with room for as many more."""
    larger = np.empty(2 * len(states), states.dtype)
    for s in range(len(states)):
        larger[s] = states[s]
    return larger


@kernel
def more_arcs(arcs: np.ndarray, count: int, room: int) -> np.ndarray:
    """The first `count` arcs, with room for `room`."""
    larger = np.empty(room, arcs.dtype)
    for a in range(count):
        larger[a] = arcs[a]
    return larger


@kernel
def expand(wanted: np.ndarray, graph: tuple[np.ndarray, ...], old: tuple[np.ndarray, ...], new: tuple[np.ndarray, ...],
           kept: tuple[np.ndarray, ...], counts: np.ndarray) -> tuple[np.ndarray, ...]:
    """Make the arcs of states `wanted`, and of those that they reach without input; returns `kept`, perhaps in larger arrays.

    `graph`: states, arcs and output labels of the graph. `kept`: states; arcs, and for each the graph's; keys (pair of models, state of
    the graph) of the states and their hash table; keys of pairs and their hash table. `counts`: states, arcs and pairs that there are.
    """
    g_states, g_arcs, g_words = graph
    states, arcs, graph_arc, keys, table, pairs, pair_table = kept
    width = np.int64(len(g_states))
    stack, size = wanted, len(wanted)
    while size > 0:
        size -= 1
        c = stack[size]
        if states[c].begin != UNMADE:
            continue
        own, pair_number = keys[c] % width, keys[c] // width
        begin, end = g_states[own].begin, g_states[own].end
        if counts[1] + end - begin > len(arcs):
            room = 2 * (counts[1] + end - begin)
            arcs, graph_arc = more_arcs(arcs, counts[1], room), longer(graph_arc, room)
        to = counts[1]
        states[c].begin = to
        for a in range(begin, end):
            if a == g_states[own].emit:
                states[c].emit = to
            word, target_pair, weight = g_words[a], pair_number, g_arcs[a].weight
            if word != 0:
                pair, cost = _difference(old, new, pairs[pair_number], word)
                if pair < 0:
                    continue
                weight += cost
                pairs, pair_table, target_pair = number_of(pairs, pair_table, counts[2], pair)
                counts[2] += target_pair == counts[2]
            key = target_pair * width + g_arcs[a].nextstate
            keys, table, n = number_of(keys, table, counts[0], key)
            if n == counts[0]:
                counts[0] += 1
                if n == len(states):
                    states = more_states(states)
                states[n].begin = UNMADE
                new_size = np.int64(len(new[6]))
                final = g_states[g_arcs[a].nextstate].final
                if final < np.inf:
                    old_end, new_end = old[6][pairs[target_pair] // new_size], new[6][pairs[target_pair] % new_size]
                    final = final + new_end - old_end if old_end < np.inf else np.float32(np.inf)
                states[n].final = final
            arcs[to].nextstate, arcs[to].weight, arcs[to].pdf = n, weight, g_arcs[a].pdf
            graph_arc[to] = a
            to += 1
            if a < g_states[own].emit:
                if size == len(stack):
                    stack = longer(stack, 2 * size + 16)
                stack[size] = n
                size += 1
        if g_states[own].emit == end:
            states[c].emit = to
        states[c].end = to
        counts[1] = to
    return states, arcs, graph_arc, keys, table, pairs, pair_table


@kernel(nogil=True)
def advance(graph: tuple[np.ndarray, ...], old: tuple[np.ndarray, ...], new: tuple[np.ndarray, ...], kept: tuple[np.ndarray, ...],
            counts: np.ndarray, loglikes: np.ndarray, done: int, acwt: np.float32, beams: np.record, tokens: np.ndarray, links: np.ndarray,
            where: np.ndarray, first_token: np.ndarray, first_link: np.ndarray, stale: np.ndarray, num_tokens: int,
            num_links: int) -> tuple[Any, ...]:
    """Search on as `search.advance` does, over states that are made as they are reached; returns (kept, where, and what that does)."""
    acoustic = np.empty(loglikes.shape[1], np.float32)
    for frame in range(done, done + len(loglikes)):
        for pdf in range(len(acoustic)):
            acoustic[pdf] = -acwt * loglikes[frame - done, pdf]
        states, arcs = kept[0], kept[1]
        tokens, links, num_tokens, emitted, num_links, cutoff = search.emit_frame(
            states, arcs, tokens, links, where, first_token, first_link, stale, frame, num_tokens, num_links, acoustic, beams)
        if emitted == num_tokens:
            return kept, where, tokens, links, 0, 0
        kept = expand(search.states_of(tokens, num_tokens, emitted), graph, old, new, kept, counts)
        if len(kept[0]) > len(where):
            where = longer(where, len(kept[0]))
        tokens, links, num_tokens, num_links = search.follow_epsilons(
            kept[0], kept[1], tokens, links, where, num_tokens, emitted, num_links, cutoff)
    first_token[done + len(loglikes) + 1], first_link[done + len(loglikes) + 1] = num_tokens, num_links
    return kept, where, tokens, links, num_tokens, num_links


class GrowingDecoder(LatticeDecoder, ABC):
    """A lattice decoder whose states are made when its search reaches them, and kept for the frames and utterances that follow."""

    _counts: np.ndarray  # how many states and arcs have been made, and what else a subclass counts
    _kept: tuple[np.ndarray, ...]  # the states, the arcs, and what else belongs to them

    @abstractmethod
    def _forget(self) -> None:
        """Keep no state but the start."""

    @abstractmethod
    def _expanded(self, wanted: np.ndarray) -> tuple[np.ndarray, ...]:
        """What is kept, with the arcs of states `wanted`."""

    def another(self: D, where: np.ndarray | None = None) -> D:
        other = super().another()
        other._counts = np.zeros_like(self._counts)
        other._forget()
        return other

    @property
    def lent_states(self) -> int:
        """0: the working memory grows with the states, and is the decoder's own."""
        return 0

    def lend(self, where: np.ndarray) -> None:
        """Take nothing: see `lent_states`."""

    def _begin(self) -> tuple[int, int]:
        if self._counts[1] > MOST_ARCS:
            self._forget()
        self._kept = self._expanded(np.zeros(1, np.int32))
        self._states, self._arcs = self._kept[:2]
        if len(self._where) < len(self._states):
            self._where = np.zeros(len(self._states), np.int32)
        return super()._begin()


class BiglmDecoder(GrowingDecoder):
    """A lattice decoder on a graph of the language model `old`, whose costs are replaced by those of the model `new` while it searches.

    Both are G.fst of the graph's words.txt, with the number of #0 as `backoff_label`. Raises UserError where they are no n-gram models.
    """

    def __init__(self, graph: Fst | SearchGraph, tid2pdf: np.ndarray, options: DecoderOptions, old: Fst, new: Fst,
                 backoff_label: int) -> None:
        super().__init__(graph, tid2pdf, options)
        self._graph, self._graph_start = (self._states, self._arcs, self._olabel), self._start
        first, second = (backoff_model(model, backoff_label, f"the {what} language model") for model, what in ((old, "old"), (new, "new")))
        self._models = tuple(first), tuple(second)
        self._first_pair = old.start * new.num_states + new.start
        end = self._states["final"][self._start] + second.final[new.start] - first.final[old.start]
        self._first_final = end if np.isfinite(end) else np.inf
        self._counts = np.zeros(3, np.int64)  # states, arcs and pairs that have been made
        self._start = 0
        self._forget()

    def _forget(self) -> None:
        states, keys, table = np.empty(1024, search.STATE), np.empty(1024, np.int64), np.full(4096, -1, np.int32)
        pairs, pair_table = np.empty(1024, np.int64), np.full(4096, -1, np.int32)
        states["begin"][0], states["final"][0], keys[0], pairs[0] = UNMADE, self._first_final, self._graph_start, self._first_pair
        table[slot_of(table, keys, keys[0])], pair_table[slot_of(pair_table, pairs, pairs[0])] = 0, 0
        self._counts[:] = 1, 0, 1
        self._kept = (states, np.empty(4096, search.ARC), np.empty(4096, np.int32), keys, table, pairs, pair_table)

    def _expanded(self, wanted: np.ndarray) -> tuple[np.ndarray, ...]:
        return expand(wanted, self._graph, *self._models, self._kept, self._counts)

    def _advance(self, loglikes: np.ndarray, done: int, first_token: np.ndarray, first_link: np.ndarray, stale: np.ndarray, num_tokens: int,
                 num_links: int) -> tuple[int, int]:
        self._kept, self._where, self._tokens, self._links, tokens, links = advance(
            self._graph, *self._models, self._kept, self._counts, loglikes, done, np.float32(self.options.acwt), self._beams, self._tokens,
            self._links, self._where, first_token, first_link, stale, num_tokens, num_links)
        self._states, self._arcs = self._kept[:2]
        return tokens, links

    def _labels(self, arcs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return super()._labels(self._kept[2][arcs])
