"""Training graphs: all ways in which a transcript can be spoken, down to transition-ids, as flat arrays.

A graph is made in two steps. The lexicon transducer L, composed with the words in a row, gives a graph of phones: optional
silences and pronunciation variants with their costs, epsilons removed, arcs of one phone from one state merged. Then each phone is
replaced by its HMM: a graph state for each emitting HMM state, an arc for each transition_id. An arc consumes a frame; a
transition out of the phone leads to the first state of every phone that may follow. Transition probabilities are not in the
graph, so that it serves all iterations of a training (Kaldi's compile-train-graphs with zero scales).
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pykaldist.errors import UserError
from pykaldist.hmm.transition_model import TransitionModel
from pykaldist.hmm.tree import ContextDependency
from pykaldist.io.fst import Fst
from pykaldist.io.lang import LangDir


@dataclass(frozen=True)
class TrainingGraph:
    """States 0 .. S - 1 and the final state S; the arcs of state s are `offsets[s]:offsets[s + 1]`.

    Arc a consumes a frame with `tid[a]`, goes from `source[a]` to `destination[a]` (int32) and costs `cost[a]` (float32). An
    utterance starts in one of `start_states` at `start_costs`. `pdfs` are the pdfs that occur, sorted; `column[a]` says which
    of them arc a has. `min_frames` is the length of the shortest path.
    """

    offsets: np.ndarray
    source: np.ndarray
    destination: np.ndarray
    tid: np.ndarray
    cost: np.ndarray
    column: np.ndarray
    pdfs: np.ndarray
    start_states: np.ndarray
    start_costs: np.ndarray
    min_frames: int

    @property
    def num_states(self) -> int:
        """Without the final state."""
        return len(self.offsets) - 1


State = tuple[int, int]  # words consumed, state of L


@dataclass
class PhoneGraph:
    """Node i is phone `phones[i]`; `following[i]` are (node, cost) pairs, node -1 the end; `start` likewise."""

    phones: list[int]
    following: list[list[tuple[int, float]]]
    start: list[tuple[int, float]]


class Lexicon:
    """The lexicon transducer L of a language directory, by state and word."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = str(path)
        fst = Fst.read(path)
        self.start = fst.start
        self.final = {int(state): float(fst.final[state]) for state in np.flatnonzero(fst.final < np.inf)}
        self.words = set(fst.olabel.tolist())
        self._arcs: dict[tuple[int, int], list[tuple[int, float, int]]] = {}
        columns = (fst.source, fst.olabel, fst.ilabel, fst.weight, fst.nextstate)
        for state, word, phone, cost, to in zip(*(column.tolist() for column in columns), strict=True):
            self._arcs.setdefault((state, word), []).append((phone, cost, to))

    def leaving(self, state: State, words: Sequence[int]) -> list[tuple[int, float, State]]:
        """Arcs (phone, cost, next state) out of a state of L composed with `words`."""
        consumed, here = state
        arcs = [(phone, cost, (consumed, to)) for phone, cost, to in self._arcs.get((here, 0), ())]
        if consumed < len(words):
            arcs += [(phone, cost, (consumed + 1, to)) for phone, cost, to in self._arcs.get((here, words[consumed]), ())]
        return arcs

    def phone_graph(self, words: Sequence[int]) -> PhoneGraph:
        """All phone sequences of a transcript; raises UserError for a word without a pronunciation."""
        missing = next((word for word in words if word not in self.words or word == 0), None)
        if missing is not None:
            raise UserError(f"{self.path} has no pronunciation of word {missing}; run utils/prepare_lang.sh again.")
        nodes: dict[tuple[State, int], int] = {}
        exits: list[dict[State, float]] = []

        def follow(state: State, cost: float) -> list[tuple[int, float]]:
            """The nodes that can be entered from a state of the composition, epsilons passed."""
            found: dict[int, float] = {}
            stack, best = [(state, cost)], {state: cost}
            while stack:
                state, cost = stack.pop()
                if state[0] == len(words) and state[1] in self.final:
                    found[-1] = min(found.get(-1, np.inf), cost + self.final[state[1]])
                for phone, arc_cost, to in self.leaving(state, words):
                    if phone == 0:
                        if cost + arc_cost < best.get(to, np.inf):
                            best[to] = cost + arc_cost
                            stack.append((to, best[to]))
                        continue
                    node = nodes.setdefault((state, phone), len(nodes))
                    if node == len(exits):
                        exits.append({})
                    exits[node][to] = min(exits[node].get(to, np.inf), arc_cost)
                    found[node] = min(found.get(node, np.inf), cost)
            return list(found.items())

        start = follow((0, self.start), 0.0)
        following: list[list[tuple[int, float]]] = []
        while len(following) < len(exits):  # `follow` finds new nodes behind
            merged: dict[int, float] = {}
            for to, exit_cost in exits[len(following)].items():
                for node, cost in follow(to, exit_cost):
                    merged[node] = min(merged.get(node, np.inf), cost)
            following.append(list(merged.items()))
        return PhoneGraph([phone for _, phone in nodes], following, start)


class GraphCompiler:
    """Makes training graphs for one language directory, tree and transition model."""

    def __init__(self, lang: LangDir, tree: ContextDependency, transition_model: TransitionModel) -> None:
        if tree.width != 1:
            raise UserError(f"training graphs are made for monophone trees; this tree has a context of {tree.width} phones.")
        self.lexicon = Lexicon(lang.file("L.fst"))
        self.tree, self.transition_model = tree, transition_model
        self._hmms: dict[int, list[list[tuple[int, int]]]] = {}

    def _hmm(self, phone: int) -> list[list[tuple[int, int]]]:
        """For each emitting HMM state of `phone` its (destination, transition_id) pairs; the destination -1 is the phone's end."""
        if phone not in self._hmms:
            model, entry = self.transition_model, self.transition_model.topology.entry(phone)
            states = []
            for hmm_state, state in enumerate(entry[:-1]):
                forward = self.tree.compute((phone,), state.forward_pdf_class)
                self_loop = self.tree.compute((phone,), state.self_loop_pdf_class)
                try:
                    first = int(model.state2first[model.tuple2state(phone, hmm_state, forward, self_loop)])
                except KeyError as error:
                    raise UserError(f"phone {phone}, state {hmm_state}, pdf {forward} is in the tree but not in the transition "
                                    "model; they do not belong together.") from error
                states.append([(-1 if to == len(entry) - 1 else to, first + n) for n, (to, _) in enumerate(state.transitions)])
            self._hmms[phone] = states
        return self._hmms[phone]

    def compile(self, words: Sequence[int]) -> TrainingGraph:
        """The training graph of a transcript (numbers of words); raises UserError for a word without a pronunciation."""
        phones = self.lexicon.phone_graph(words)
        hmms = [self._hmm(phone) for phone in phones.phones]
        base = np.concatenate([[0], np.cumsum([len(hmm) for hmm in hmms])]).tolist()
        final = base[-1]
        sources: list[int] = []
        destinations: list[int] = []
        tids: list[int] = []
        costs: list[float] = []
        for hmm, first, following in zip(hmms, base, phones.following, strict=False):
            after = [(final if node < 0 else base[node], cost) for node, cost in following]
            for state, transitions in enumerate(hmm, first):
                for to, tid in transitions:
                    for destination, cost in after if to < 0 else ((first + to, 0.0),):
                        sources.append(state)
                        destinations.append(destination)
                        tids.append(tid)
                        costs.append(cost)
        tid = np.array(tids, dtype=np.int32)
        pdfs, column = np.unique(self.transition_model.tid2pdf[tid], return_inverse=True)
        offsets = np.searchsorted(sources, np.arange(final + 1)).astype(np.int32)
        return TrainingGraph(offsets, np.array(sources, dtype=np.int32), np.array(destinations, dtype=np.int32), tid,
                             np.array(costs, dtype=np.float32), column.astype(np.int32), pdfs.astype(np.int32),
                             np.array([base[node] for node, _ in phones.start], dtype=np.int32),
                             np.array([cost for _, cost in phones.start], dtype=np.float32), self._min_frames(phones))

    def _min_frames(self, phones: PhoneGraph) -> int:
        """The fewest frames from start to end (Dijkstra)."""
        length = [self.transition_model.topology.min_length(phone) for phone in phones.phones]
        queue, done = [(0, node) for node, _ in phones.start], set()
        while queue:
            frames, node = heapq.heappop(queue)
            if node < 0:
                return frames
            if node not in done:
                done.add(node)
                for following, _ in phones.following[node]:
                    heapq.heappush(queue, (frames + length[node], following))
        raise UserError(f"{self.lexicon.path}: no path leads to a final state; run utils/prepare_lang.sh again.")
