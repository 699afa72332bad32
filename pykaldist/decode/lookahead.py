"""A decoder that composes the lexicon with the language model while it searches, looking ahead from each state for the words to come.

A state is a pair (state s of HCLr, state g of Gr), an arc of HCLr that writes no word leads from (s, g) to (t, g), one that writes w to
(t, h) for each arc of Gr from g to h that reads w; weights add up. Nothing that is made here differs from HCLr o Gr, but for two things.

*Pairs without a future are not made.* Inside a word few words are left, and of these the history g has but few: where the words that s may
write next, N(s), and those that g reads have none in common, no path from (s, g) ends. N(s) is few intervals of numbers
(io/lookahead_fst.py) and g's arcs are sorted by them, so that a binary search for each interval says so.

*Weights are pushed.* The cost of a word would be paid where HCLr writes it, at its end, and the beam would see too late that a word is
unlikely. With the potential

    v(s, g) = -log of the probabilities, summed, of the arcs of g that read a word of N(s) (and of g's end, where s may end without a word),

what a part of a word costs in all that it may become, an arc from (s, g) to (t, h) of weight w weighs w + v(t, h) - v(s, g), and a final
state f - v(s, g) + v(start). Along a path the potentials cancel each other, so that every path costs what it cost; but the cost of a word
is paid bit by bit while its beginning is heard, and where one word is left it is paid already. Any potential would do. The sum is what a
static graph has, whose weights are pushed likewise; with the best word in its place fewer good paths were found in a beam of one width.
Sums over the intervals come from sums of blocks of 32 and of 1,024 arcs, so that the many arcs of the single words' state are not looked
at one by one.

States are made when they are reached, and kept for the frames and utterances that follow, as in `lazy_graph.py`.
Source: C. Allauzen, M. Riley, J. Schalkwyk, "A generalized composition algorithm for weighted finite-state transducers", Interspeech 2009.
"""

from __future__ import annotations

import copy
import os
from typing import Any

import numpy as np

from pykaldist.decode import search
from pykaldist.decode.decoder import DecoderOptions, LatticeDecoder
from pykaldist.decode.lazy_graph import UNMADE, GrowingDecoder, more_arcs, more_states
from pykaldist.decode.lookahead_graph import LookaheadGraph, is_lookahead
from pykaldist.decode.search_graph import SearchGraph, read_search_graph
from pykaldist.io.fst import Fst
from pykaldist.io.fst_compose import first_at_least, longer, number_of, slot_of, trimmed
from pykaldist.io.fstops import log_plus
from pykaldist.kernels import kernel

_BLOCK = 32  # arcs, or blocks, whose sum is kept


def block_sums(values: np.ndarray) -> np.ndarray:
    """The cost of each block of 32 arcs together, which weigh `values`."""
    return -np.logaddexp.reduceat(-values, np.arange(0, len(values), _BLOCK)) if len(values) else values


@kernel
def together(values: np.ndarray, blocks: np.ndarray, large: np.ndarray, begin: int, end: int) -> Any:
    """The cost of the arcs begin:end together, which weigh `values`, by way of sums of blocks and of blocks of blocks."""
    cost = np.float32(np.inf)
    while begin < end:
        if begin % (_BLOCK * _BLOCK) == 0 and begin + _BLOCK * _BLOCK <= end:
            cost = log_plus(cost, large[begin // (_BLOCK * _BLOCK)])
            begin += _BLOCK * _BLOCK
        elif begin % _BLOCK == 0 and begin + _BLOCK <= end:
            cost = log_plus(cost, blocks[begin // _BLOCK])
            begin += _BLOCK
        else:
            cost = log_plus(cost, values[begin])
            begin += 1
    return cost


@kernel
def potential(next_words: tuple[np.ndarray, ...], grammar: tuple[np.ndarray, ...], s: int, g: int) -> Any:
    """What all ways on from (s, g) cost together: v(s, g), infinite where there is none."""
    set_offset, set_begin, set_end, may_end = next_words
    offset, label, _, weight, _, final, blocks, large = grammar
    cost = final[g] if may_end[s] else np.float32(np.inf)
    arc, end = offset[g], offset[g + 1]
    first, last = set_offset[s], set_offset[s + 1]
    if end - arc < last - first:
        for a in range(arc, end):
            i = first_at_least(set_end, first, last, label[a] + 1)
            if i < last and set_begin[i] <= label[a]:
                cost = log_plus(cost, weight[a])
        return cost
    for i in range(first, last):
        arc = first_at_least(label, arc, end, set_begin[i])
        beyond = first_at_least(label, arc, end, set_end[i])
        cost = log_plus(cost, together(weight, blocks, large, arc, beyond))
        arc = beyond
        if arc == end:
            break
    return cost


@kernel
def expand(wanted: np.ndarray, lexicon: tuple[np.ndarray, ...], next_words: tuple[np.ndarray, ...], grammar: tuple[np.ndarray, ...],
           kept: tuple[np.ndarray, ...], counts: np.ndarray, start_potential: np.float32) -> tuple[np.ndarray, ...]:
    """Make the arcs of states `wanted`, and of those that they reach without input; returns `kept`, perhaps in larger arrays.

    `lexicon`: states, arcs and written labels of HCLr. `kept`: states; arcs, and for each the arc of HCLr and the word; keys of the states
    (g times the states of HCLr, plus s), their potentials and their hash table. `counts`: states and arcs that there are.
    """
    l_states, l_arcs, l_words = lexicon
    g_offset, g_label, g_word, g_weight, g_next, g_final, _, _ = grammar
    states, arcs, lexicon_arc, word, keys, values, table = kept
    width = np.int64(len(l_states))
    stack, size = wanted, len(wanted)
    while size > 0:
        size -= 1
        c = stack[size]
        if states[c].begin != UNMADE:
            continue
        s, g, value = keys[c] % width, keys[c] // width, values[c]
        to = counts[1]
        states[c].begin, states[c].emit = to, UNMADE
        for a in range(l_states[s].begin, l_states[s].end):
            if a == l_states[s].emit:
                states[c].emit = to
            label = l_words[a]
            b, end = np.int64(0), np.int64(1)
            if label != 0:
                b = first_at_least(g_label, g_offset[g], g_offset[g + 1], label)
                end = b
                while end < g_offset[g + 1] and g_label[end] == label:
                    end += 1
            for own in range(b, end):
                h = np.int64(g_next[own]) if label != 0 else g
                key = h * width + l_arcs[a].nextstate
                slot = slot_of(table, keys, key)
                n = np.int64(table[slot])
                if n < 0:
                    ahead = potential(next_words, grammar, l_arcs[a].nextstate, h)
                    if ahead == np.inf:
                        continue
                    keys, table, n = number_of(keys, table, counts[0], key)
                    counts[0] += 1
                    if n == len(states):
                        states, values = more_states(states), longer(values, 2 * n)
                    states[n].begin, values[n] = UNMADE, ahead
                    states[n].final = l_states[l_arcs[a].nextstate].final + g_final[h] - ahead + start_potential
                if to == len(arcs):
                    arcs, lexicon_arc, word = more_arcs(arcs, to, 2 * to), longer(lexicon_arc, 2 * to), longer(word, 2 * to)
                weight = l_arcs[a].weight + values[n] - value
                if label != 0:
                    weight += g_weight[own]
                arcs[to].nextstate, arcs[to].weight, arcs[to].pdf = n, weight, l_arcs[a].pdf
                lexicon_arc[to] = a
                word[to] = g_word[own] if label != 0 else 0
                to += 1
                if a < l_states[s].emit:
                    if size == len(stack):
                        stack = longer(stack, 2 * size + 16)
                    stack[size] = n
                    size += 1
        if states[c].emit == UNMADE:
            states[c].emit = to
        states[c].end = to
        counts[1] = to
    return states, arcs, lexicon_arc, word, keys, values, table


@kernel(nogil=True)
def advance(lexicon: tuple[np.ndarray, ...], next_words: tuple[np.ndarray, ...], grammar: tuple[np.ndarray, ...],
            kept: tuple[np.ndarray, ...], counts: np.ndarray, start_potential: np.float32, loglikes: np.ndarray, done: int,
            acwt: np.float32, beams: np.record, tokens: np.ndarray, links: np.ndarray, where: np.ndarray, first_token: np.ndarray,
            first_link: np.ndarray, stale: np.ndarray, num_tokens: int, num_links: int) -> tuple[Any, ...]:
    """Search on as `search.advance` does, over states that are made as they are reached; returns (kept, where, and what that does)."""
    for frame in range(done, done + len(loglikes)):
        tokens, links, num_tokens, emitted, num_links, cutoff = search.emit_frame(
            kept[0], kept[1], tokens, links, where, first_token, first_link, stale, frame, num_tokens, num_links,
            -acwt * loglikes[frame - done], beams)
        if emitted == num_tokens:
            return kept, where, tokens, links, 0, 0
        kept = expand(search.states_of(tokens, num_tokens, emitted), lexicon, next_words, grammar, kept, counts, start_potential)
        if len(kept[0]) > len(where):
            where = longer(where, len(kept[0]))
        tokens, links, num_tokens, num_links = search.follow_epsilons(
            kept[0], kept[1], tokens, links, where, num_tokens, emitted, num_links, cutoff)
    first_token[done + len(loglikes) + 1], first_link[done + len(loglikes) + 1] = num_tokens, num_links
    return kept, where, tokens, links, num_tokens, num_links


class LookaheadDecoder(GrowingDecoder):
    """A lattice decoder on HCLr and Gr, composed while it searches: paths and costs are those of a graph of both.

    Raises UserError where HCLr has labels that the model of `tid2pdf` has not.
    """

    def __init__(self, graph: LookaheadGraph, tid2pdf: np.ndarray, options: DecoderOptions) -> None:
        super().__init__(graph.lexicon, tid2pdf, options)
        own, sets = graph.lexicon, graph.next_words
        self._lexicon, self._lexicon_start = (own.states, own.arcs, own.olabel), own.start
        self._next_words = sets.offset, sets.begin, sets.end, sets.may_end()
        self._counts = np.zeros(2, np.int64)  # states and arcs that have been made
        self._start = 0
        self._set_grammar(graph.grammar)
        self._forget()

    def _set_grammar(self, g: Fst) -> None:
        states, start = self._lexicon[0], self._lexicon_start
        blocks = block_sums(g.weight)
        self._grammar = g.offset, g.ilabel, g.olabel, g.weight, g.nextstate, g.final, blocks, block_sums(blocks)
        self._first = np.int64(g.start) * len(states) + start
        self._start_potential = np.float32(potential(self._next_words, self._grammar, start, g.start))
        self._first_final = states["final"][start] + g.final[g.start]

    def with_grammar(self, grammar: Fst) -> LookaheadDecoder:
        """A decoder for another thread with another language model, as `lookahead_graph.grammar_half` makes it, on the same lexicon."""
        other = copy.copy(self)
        other._set_grammar(grammar)
        return other.another()

    def _forget(self) -> None:
        states, keys, table = np.empty(1024, search.STATE), np.empty(1024, np.int64), np.full(4096, -1, np.int32)
        values = np.empty(1024, np.float32)
        states["begin"][0], states["final"][0], keys[0], values[0] = UNMADE, self._first_final, self._first, self._start_potential
        table[slot_of(table, keys, keys[0])] = 0
        self._counts[:] = 1, 0
        self._kept = (states, np.empty(4096, search.ARC), np.empty(4096, np.int32), np.empty(4096, np.int32), keys, values, table)

    def _expanded(self, wanted: np.ndarray) -> tuple[np.ndarray, ...]:
        return expand(wanted, self._lexicon, self._next_words, self._grammar, self._kept, self._counts, self._start_potential)

    def whole(self) -> Fst:
        """The graph of both, every state that can be reached: as large as a graph that was made ahead."""
        done = 0
        while done < self._counts[0]:
            wanted = np.arange(done, self._counts[0], dtype=np.int32)
            done = int(self._counts[0])
            self._kept = self._expanded(wanted)
        states, arcs = self._kept[0][:done], self._kept[1]
        counts = states["end"] - states["begin"]
        offset = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])
        order = np.repeat(states["begin"] - offset[:-1], counts) + np.arange(offset[-1])
        return trimmed(Fst(0, states["final"].copy(), offset, *self._labels(order), arcs["weight"][order], arcs["nextstate"][order]))

    def _advance(self, loglikes: np.ndarray, done: int, first_token: np.ndarray, first_link: np.ndarray, stale: np.ndarray, num_tokens: int,
                 num_links: int) -> tuple[int, int]:
        self._kept, self._where, self._tokens, self._links, tokens, links = advance(
            self._lexicon, self._next_words, self._grammar, self._kept, self._counts, self._start_potential, loglikes, done,
            np.float32(self.options.acwt), self._beams, self._tokens, self._links, self._where, first_token, first_link, stale, num_tokens,
            num_links)
        self._states, self._arcs = self._kept[:2]
        return tokens, links

    def _labels(self, arcs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self._ilabel[self._kept[2][arcs]], self._kept[3][arcs]


def read_graph(graph_dir: str | os.PathLike[str], tid2pdf: np.ndarray, lookahead: bool = False) -> SearchGraph | LookaheadGraph:
    """The graph of a directory: HCLG.fst; or HCLr.fst and Gr.fst where there is no HCLG.fst, or `lookahead` says so."""
    if lookahead or is_lookahead(graph_dir):
        return LookaheadGraph.read(graph_dir, tid2pdf)
    return read_search_graph(graph_dir, tid2pdf)


def make_decoder(graph: SearchGraph | LookaheadGraph, tid2pdf: np.ndarray, options: DecoderOptions) -> LatticeDecoder:
    """A decoder on a graph of either kind."""
    if isinstance(graph, LookaheadGraph):
        return LookaheadDecoder(graph, tid2pdf, options)
    return LatticeDecoder(graph, tid2pdf, options)


def read_decoder(graph_dir: str | os.PathLike[str], tid2pdf: np.ndarray, options: DecoderOptions,
                 lookahead: bool = False) -> LatticeDecoder:
    """The decoder on the graph of a directory, which `read_graph` reads."""
    return make_decoder(read_graph(graph_dir, tid2pdf, lookahead), tid2pdf, options)
