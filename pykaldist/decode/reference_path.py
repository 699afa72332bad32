"""The reference of an utterance, added to its denominator lattice where no path of this has its words.

Its path has the alignment's transition-ids and the transcript's words; its graph cost is the least of the paths with both in the lattices'
graph (HCLG), found by composing the three, so that nothing is pruned. A lattice with the words on a path is left as it is: a determinised
lattice keeps one alignment for each sequence of words, and a second one with the same words would count them twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import kaldifst
import numpy as np

from pykaldist.decode.lattice import Lattice
from pykaldist.decode.oracle import oracle_words
from pykaldist.decode.paths import LatticePath
from pykaldist.io.fst import Fst
from pykaldist.io.fstops import to_kaldifst


class ReferencePaths:
    """The paths of references through a graph; `counts`: how many were added to lattices, how many the graph or the transcripts lack."""

    def __init__(self, graph: Fst, transcripts: Mapping[str, Sequence[int]]) -> None:
        self._graph, self._transcripts = to_kaldifst(graph), transcripts
        kaldifst.arcsort(self._graph, "ilabel")
        self.counts = {"added": 0, "not in the graph": 0, "without a transcript": 0}

    def path(self, transition_ids: np.ndarray, words: Sequence[int]) -> LatticePath | None:
        """The best path with these transition-ids and words, without acoustic costs; None where the graph has none."""
        aligned = kaldifst.compose(kaldifst.make_linear_acceptor(transition_ids.tolist()), self._graph)
        kaldifst.arcsort(aligned, "olabel")
        found = kaldifst.shortest_path(kaldifst.compose(aligned, kaldifst.make_linear_acceptor(list(words))))
        if found.start < 0:
            return None
        *_, weight = kaldifst.get_linear_symbol_sequence(found)
        return LatticePath(list(words), transition_ids.astype(np.int32), weight.value, 0.0)

    def completed(self, utt: str, lattice: Lattice, transition_ids: np.ndarray) -> Lattice:
        """The lattice of an utterance, with the path of the reference if it has no path with its words.

        Raises ValueError with a clause where the lattice has no path at all.
        """
        words = self._transcripts.get(utt)
        if words is None:
            self.counts["without a transcript"] += 1
            return lattice
        if oracle_words(lattice, words) == list(words):
            return lattice
        path = self.path(transition_ids, words)
        self.counts["added" if path else "not in the graph"] += 1
        return with_path(lattice, path) if path else lattice


def with_path(lattice: Lattice, path: LatticePath) -> Lattice:
    """The lattice with one more path from its start to a final state of its own, with all costs and transition-ids on its first arc."""
    words = np.array(path.words or [0], np.int32)
    new, states, arcs, first = len(words), lattice.num_states, lattice.num_arcs, lattice.offset[1]

    def extended(of_arcs: np.ndarray, one: float, others: np.ndarray) -> np.ndarray:
        """Values of the arcs with those of the new ones: the first stands behind the arcs of the start, the others at the end."""
        return np.concatenate([of_arcs[:first], [one], of_arcs[first:], others]).astype(of_arcs.dtype)

    nothing = np.zeros(new - 1)
    offset = np.concatenate([[0], lattice.offset[1:] + 1, arcs + 1 + np.minimum(np.arange(1, new + 1), new - 1)])
    ends = np.append(np.full(new - 1, np.inf, np.float32), np.float32(0))
    length = np.diff(lattice.string)
    lengths = np.concatenate([extended(length[:arcs], len(path.transition_ids), nothing), length[arcs:], np.zeros(new, np.int64)])
    at = lattice.string[first]
    target = extended(lattice.target, states, np.arange(states + 1, states + new))
    return Lattice(offset, extended(lattice.word, words[0], words[1:]), extended(lattice.graph, path.graph, nothing),
                   extended(lattice.acoustic, path.acoustic, nothing), target,
                   np.concatenate([lattice.final, ends]), np.concatenate([lattice.final_acoustic, ends]),
                   np.concatenate([[0], np.cumsum(lengths)]),
                   np.concatenate([lattice.transition_ids[:at], path.transition_ids, lattice.transition_ids[at:]]), lattice.reached_final,
                   lattice.narrowed)
