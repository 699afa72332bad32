"""Training graphs: for each transcript all the ways to speak it, down to transition-ids, as flat arrays.

A graph is made in three steps. The lexicon transducer L, composed with the words in a row, gives a graph of phones: optional
silences and pronunciation variants with their costs, epsilons removed, arcs of one phone from one state merged. Where the tree looks at
neighbours, also across words, a phone becomes as many nodes as it has contexts that differ in its pdfs or in what may follow. Then each
node is replaced by its HMM: a graph state for each emitting HMM state, an arc for each transition_id. An arc consumes a frame; a
transition out of the phone leads to the first state of every phone that may follow. Transition probabilities are not in the
graph, so that it serves all iterations of a training (Kaldi's compile-train-graphs with zero scales).
"""

from __future__ import annotations

import functools
import heapq
import os
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pykaldist.errors import UserError
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.hmm.tree.tree import ContextDependency
from pykaldist.io.atomic import atomic_open
from pykaldist.io.fst import Fst
from pykaldist.io.lang import LangDir
from pykaldist.io.numbered import Numbered
from pykaldist.io.scratch import RowWriter, release
from pykaldist.progress import progress

_COSTS = ("cost", "start_costs")
_ARRAYS = ("offsets", "source", "destination", "tid", *_COSTS, "column", "pdfs", "start_states")


@dataclass(frozen=True)
class TrainingGraph:
    """The training graph of one transcript, with the states 0 .. S - 1 and the final state S.

    The arcs of state s are `offsets[s]:offsets[s + 1]`.

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
        """The number of states, without the final state."""
        return len(self.offsets) - 1

    def repeated(self) -> TrainingGraph:
        """The graph in which the transcript may be said again after its end; the second time has no end (Kaldi's --careful).

        Where that fits the utterance better, by more than the beam, no complete path is left.
        """
        states, final = self.num_states, self.destination == self.num_states
        ends, starts = np.flatnonzero(final), len(self.start_states)
        # Of both rounds, the arcs within; then the first round's to the end, and those from there to the second round's starts.
        inside = np.flatnonzero(~final)
        arc = np.concatenate([inside, inside, ends, np.repeat(ends, starts)])
        second = np.repeat([0, states, 0, 0], [len(inside), len(inside), len(ends), len(ends) * starts])
        destination = np.concatenate([self.destination[inside], self.destination[inside] + states, np.full(len(ends), 2 * states),
                                      np.tile(self.start_states + states, len(ends))])
        cost = self.cost[arc]
        cost[len(arc) - len(ends) * starts:] += np.tile(self.start_costs, len(ends))
        source = self.source[arc] + second
        order = np.argsort(source, kind="stable")
        arc, source = arc[order], source[order]
        return replace(self, offsets=np.searchsorted(source, np.arange(2 * states + 1)).astype(np.int32), source=source.astype(np.int32),
                       destination=destination[order].astype(np.int32), tid=self.tid[arc], cost=cost[order], column=self.column[arc])


class TrainingGraphs(Numbered[TrainingGraph]):
    """The training graphs of a corpus, one behind the other in one array of 4-byte words (io/scratch.py)."""

    limit = 1 << 22  # words in memory

    def __init__(self, graphs: Iterable[TrainingGraph], scratch: Path | None = None) -> None:
        rows, ends = RowWriter(self.limit, scratch), array("q", [0])
        for graph in graphs:
            fields = [getattr(graph, name) for name in _ARRAYS]
            head = np.array([graph.min_frames, *map(len, fields)], dtype=np.int32)
            rows.append(np.concatenate([head, *(field.view(np.int32) for field in fields)]))
            ends.append(rows.count)
        self._words, self._ends = rows.array(), np.frombuffer(ends, np.int64)

    @classmethod
    def read(cls, path: Path) -> TrainingGraphs:
        """The graphs that `write` has left in a file, which is mapped."""
        made = cls.__new__(cls)
        with path.open("rb") as stream:
            made._ends = np.load(stream, allow_pickle=False)
            at = stream.tell()
        made._words = np.memmap(path, np.int32, "r", at, (int(made._ends[-1]),)) if made._ends[-1] else np.zeros(0, np.int32)
        return made

    def write(self, path: Path) -> None:
        """Write the graphs to a file."""
        with atomic_open(path, "wb") as stream:
            np.save(stream, self._ends - self._ends[0])
            stream.write(np.ascontiguousarray(self._words[self._ends[0]:self._ends[-1]]).data)

    def part(self, first: int, end: int) -> TrainingGraphs:
        """The graphs `first` to `end`, in the same memory."""
        made = type(self).__new__(type(self))
        made._words, made._ends = self._words, self._ends[first:end + 1]
        return made

    def __len__(self) -> int:
        return len(self._ends) - 1

    def item(self, number: int) -> TrainingGraph:
        words = self._words[self._ends[number]:self._ends[number + 1]]
        head = words[:1 + len(_ARRAYS)].tolist()
        fields, first = {}, len(head)
        for name, length in zip(_ARRAYS, head[1:], strict=True):
            field = words[first:first + length]
            fields[name] = field.view(np.float32) if name in _COSTS else field
            first += length
        return TrainingGraph(**fields, min_frames=head[0])

    def release(self) -> None:
        """Let go of the memory of the graphs that were used."""
        release(self._words)


State = tuple[int, int]  # words consumed, state of L


@dataclass
class PhoneGraph:
    """The phone sequences of a transcript as a graph whose nodes are phones.

    Node i is phone `phones[i]`; `following[i]` are (node, cost) pairs, node -1 the end; `start` likewise.
    """

    phones: list[int]
    following: list[list[tuple[int, float]]]
    start: list[tuple[int, float]]


class Lexicon:
    """The lexicon transducer L of a language directory, by state and word."""

    def __init__(self, path: str | os.PathLike[str], disambig: Sequence[int] = ()) -> None:
        self.path = str(path)
        fst = Fst.read(path)
        fst.ilabel[np.isin(fst.ilabel, disambig)] = 0  # those around the model of the unknown word
        self.start = fst.start
        self.final = {int(state): float(fst.final[state]) for state in np.flatnonzero(fst.final < np.inf)}
        self.words = set(fst.olabel.tolist())
        self._arcs: dict[tuple[int, int], list[tuple[int, float, int]]] = {}
        columns = (fst.source, fst.olabel, fst.ilabel, fst.weight, fst.nextstate)
        for state, word, phone, cost, to in zip(*(column.tolist() for column in columns), strict=True):
            self._arcs.setdefault((state, word), []).append((phone, cost, to))

    def leaving(self, state: State, words: Sequence[int]) -> list[tuple[int, float, State]]:
        """The arcs (phone, cost, next state) out of a state of L composed with `words`."""
        consumed, here = state
        arcs = [(phone, cost, (consumed, to)) for phone, cost, to in self._arcs.get((here, 0), ())]
        if consumed < len(words):
            arcs += [(phone, cost, (consumed + 1, to)) for phone, cost, to in self._arcs.get((here, words[consumed]), ())]
        return arcs

    def _check(self, words: Sequence[int]) -> None:
        missing = next((word for word in words if word not in self.words or word == 0), None)
        if missing is not None:
            raise UserError(f"{self.path} has no pronunciation of word {missing}; run utils/prepare_lang.sh again.")

    def transducer(self, words: Sequence[int]) -> Fst:
        """Make the transducer of all phone sequences of a transcript, from phones to words; raises UserError as `phone_graph`."""
        self._check(words)
        numbers: dict[State, int] = {(0, self.start): 0}
        states, arcs = [(0, self.start)], []
        for state in states:  # grows
            for phone, cost, to in self.leaving(state, words):
                if to not in numbers:
                    numbers[to] = len(states)
                    states.append(to)
                arcs.append((numbers[state], phone, words[state[0]] if to[0] > state[0] else 0, cost, numbers[to]))
        final = [self.final.get(here, np.inf) if consumed == len(words) else np.inf for consumed, here in states]
        columns = [np.array(column) for column in zip(*arcs, strict=True)]  # from, phone, word, cost, to
        return Fst.from_arcs(0, np.array(final), *columns)

    def phone_graph(self, words: Sequence[int]) -> PhoneGraph:
        """Make the graph of all phone sequences of a transcript; raises UserError for a word without a pronunciation."""
        self._check(words)
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


Hmm = list[list[tuple[int, int]]]  # for each emitting HMM state its (destination, transition_id) pairs; -1 is the phone's end
Window = tuple[int, ...]


def check_hmm(model: TransitionModel) -> None:
    """Check that self-loops have their states' pdfs; raises UserError where they have not, as in chain models."""
    if not model.topology.is_hmm:
        raise UserError("the model has the topology of a chain model, whose self-loops have pdfs of their own; steps/nnet3/align.sh "
                        "aligns with it, and a GMM wants another language directory.")


class GraphCompiler:
    """Makes training graphs for one language directory, tree and transition model.

    Raises UserError where self-loops have pdfs of their own: the first frame of a state is another one then, and here it is the last.
    """

    def __init__(self, lang: LangDir, tree: ContextDependency, transition_model: TransitionModel) -> None:
        check_hmm(transition_model)
        self.lexicon = Lexicon(lang.file("L.fst"), lang.disambig_phones)
        self.tree, self.transition_model = tree, transition_model
        self._number: dict[Window, int] = {}  # window -> its HMM; windows with the same pdfs share one
        self._number_of_states: dict[tuple[int, ...], int] = {}
        self._hmms: list[Hmm] = []

    def _hmm(self, window: Window) -> int:
        """The number of the HMM of the central phone of `window`."""
        if window not in self._number:
            model, phone = self.transition_model, window[self.tree.central]
            entry, transition_states = model.topology.entry(phone)[:-1], []
            for hmm_state, state in enumerate(entry):
                forward = self.tree.compute(window, state.forward_pdf_class)
                self_loop = self.tree.compute(window, state.self_loop_pdf_class)
                try:
                    transition_states.append(model.tuple2state(phone, hmm_state, forward, self_loop))
                except KeyError as error:
                    raise UserError(f"phone {phone}, state {hmm_state}, pdf {forward} is in the tree but not in the transition "
                                    "model; they do not belong together.") from error
            key = tuple(transition_states)
            if key not in self._number_of_states:
                self._number_of_states[key] = len(self._hmms)
                self._hmms.append([[(-1 if to == len(entry) else to, int(model.state2first[number]) + n)
                                    for n, (to, _) in enumerate(state.transitions)]
                                   for number, state in zip(transition_states, entry, strict=True)])
            self._number[window] = self._number_of_states[key]
        return self._number[window]

    def _in_context(self, graph: PhoneGraph) -> tuple[list[int], PhoneGraph]:
        """The graph of phones in context, and the number of each node's HMM.

        A node is a phone, what stands before it, and the phones that will follow, as far as the tree's window reaches.
        """
        after, before = self.tree.width - 1 - self.tree.central, self.tree.central

        @functools.cache
        def futures(node: int, reach: int) -> set[Window]:
            """The phones that can stand behind a node, 0 beyond the end."""
            if node < 0:
                return {(0,) * reach}
            if reach == 0:
                return {()}
            return {(graph.phones[to] if to >= 0 else 0, *rest) for to, _ in graph.following[node] for rest in futures(to, reach - 1)}

        numbers: dict[tuple[int, Window, Window, int], int] = {}
        hmms: list[int] = []
        todo: list[tuple[int, Window, Window]] = []

        def node_in_context(node: int, past: Window, future: Window) -> int:
            hmm = self._hmm((*past, graph.phones[node], *future))
            key = (node, past[1:], future, hmm)  # the farthest phone behind has done its work
            if key not in numbers:
                numbers[key] = len(todo)
                todo.append((node, past, future))
                hmms.append(hmm)
            return numbers[key]

        start = [(node_in_context(node, (0,) * before, future), cost) for node, cost in graph.start if node >= 0
                 for future in futures(node, after)]
        following: list[list[tuple[int, float]]] = []
        while len(following) < len(todo):
            node, past, future = todo[len(following)]
            past = (*past, graph.phones[node])[1:] if before else ()
            following.append([])
            for to, cost in graph.following[node]:
                if to < 0:
                    if not any(future):
                        following[-1].append((-1, cost))
                elif not future or graph.phones[to] == future[0]:
                    following[-1] += [(node_in_context(to, past, further), cost) for further in futures(to, after)
                                      if further[:-1] == future[1:]]
        return hmms, PhoneGraph([graph.phones[node] for node, _, _ in todo], following, start)

    def compile(self, words: Sequence[int]) -> TrainingGraph:
        """Make the training graph of a transcript (numbers of words); raises UserError for a word without a pronunciation."""
        numbers, phones = self._in_context(self.lexicon.phone_graph(words))
        hmms = [self._hmms[number] for number in numbers]
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
        transition_ids = np.array(tids, dtype=np.int32)
        pdfs, column = np.unique(self.transition_model.tid2pdf[transition_ids], return_inverse=True)
        offsets = np.searchsorted(sources, np.arange(final + 1)).astype(np.int32)
        return TrainingGraph(offsets, np.array(sources, dtype=np.int32), np.array(destinations, dtype=np.int32), transition_ids,
                             np.array(costs, dtype=np.float32), column.astype(np.int32), pdfs.astype(np.int32),
                             np.array([base[node] for node, _ in phones.start], dtype=np.int32),
                             np.array([cost for _, cost in phones.start], dtype=np.float32), self._min_frames(phones))

    def compile_all(self, transcripts: Sequence[Sequence[int]], scratch: Path | None = None) -> TrainingGraphs:
        """Make the training graphs of all transcripts of a corpus."""
        return TrainingGraphs((self.compile(words) for words in progress(transcripts, "compiling graphs", unit="utt")), scratch)

    def _min_frames(self, phones: PhoneGraph) -> int:
        """The least number of frames from start to end (Dijkstra)."""
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
