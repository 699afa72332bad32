"""The beam-search lattice decoder: its options, and utterances, each in one call or part by part.

The search itself is in `search.py`.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from pykaldist.decode import search
from pykaldist.decode.lattice import Lattice
from pykaldist.decode.search_graph import SearchGraph
from pykaldist.errors import UserError
from pykaldist.io.fst import Fst
from pykaldist.options import option

D = TypeVar("D", bound="LatticeDecoder")


@dataclass
class DecoderOptions:
    """The options of the decoder, with Kaldi's names and defaults (steps/decode.sh)."""

    beam: float = option(13.0, "beam, in natural-log cost: wider is slower and more exact")
    lattice_beam: float = option(8.0, "beam of the lattice: paths worse than the best by more are dropped")
    max_active: int = option(7000, "about the largest number of states active in a frame")
    min_active: int = option(200, "states kept active in a frame even outside the beam")
    acwt: float = option(0.083333, "scale of the log-likelihoods (acoustic weight)")
    prune_interval: int = option(25, "frames between prunings of the lattice")
    determinize_lattice: bool = option(True, "write lattices determinised on their words; false: of states, as rescoring takes them")
    beam_delta: float = option(0.5, "added to the beam of the next frame where max-active or min-active rules")

    def check(self) -> None:
        """Check the options; raises UserError for a value that cannot work."""
        if not (self.beam > 0 and self.lattice_beam > 0 and self.acwt > 0 and self.beam_delta > 0):
            raise UserError(f"--beam ({self.beam}), --lattice-beam ({self.lattice_beam}), --acwt ({self.acwt}) and --beam-delta "
                            f"({self.beam_delta}) must be above 0.")
        if self.max_active < 2 or not 0 <= self.min_active < self.max_active or self.prune_interval < 1:
            raise UserError(f"--max-active ({self.max_active}) must be at least 2 and above --min-active ({self.min_active}), which must "
                            f"not be negative, and --prune-interval ({self.prune_interval}) at least 1.")


class LatticeDecoder:
    """Decodes utterances on one graph; it keeps its working memory from one to the next. Not for use from two threads at once.

    `tid2pdf` maps transition-ids, the graph's input labels, to pdfs (index 0 is not used). Several decoders may have one search graph, in
    threads of their own: the search lets them compute at the same time. Raises UserError where the graph has labels that the model has not.
    """

    def __init__(self, graph: Fst | SearchGraph, tid2pdf: np.ndarray, options: DecoderOptions) -> None:
        options.check()
        graph = SearchGraph.of(graph, tid2pdf) if isinstance(graph, Fst) else graph
        self.options, self.num_pdfs = options, graph.num_pdfs
        self._states, self._arcs, self._ilabel, self._olabel = graph.states, graph.arcs, graph.ilabel, graph.olabel
        self._start = graph.start
        self._allocate(None)
        self._beams = np.array([(options.beam, options.lattice_beam, options.max_active, options.min_active, options.prune_interval,
                                 options.beam_delta, 0.1)], search.BEAMS)[0]

    def _allocate(self, where: np.ndarray | None) -> None:
        """Make the working memory, but for what is lent."""
        self._where = np.zeros(len(self._states), np.int32) if where is None else where
        self._tokens, self._links = np.empty(1 << 16, search.TOKEN), np.empty(1 << 17, search.LINK)
        self._decoding: Decoding | None = None

    def another(self: D, where: np.ndarray | None = None) -> D:
        """A decoder for another thread: the same graph and options, and working memory of its own, but for `where` as `lend` takes it."""
        other = copy.copy(self)
        other._allocate(where)
        return other

    @property
    def lent_states(self) -> int:
        """How many numbers of working memory `lend` takes: the states of the graph."""
        return len(self._states)

    def lend(self, where: np.ndarray) -> None:
        """Lend it working memory, `lent_states` int32, in place of what it has.

        What is in it counts for nothing, so that decoders which take turns may share it.
        """
        self._where = where

    def decode(self, loglikes: np.ndarray) -> Lattice | None:
        """Decode an utterance: its lattice, pruned to the lattice beam; None where no path survives the beam.

        `loglikes` is [frames, pdfs]; it is scaled by `acwt` in the search, and unscaled in the lattice. Where no final state was reached,
        every token of the last frame counts as final and `reached_final` is False. Raises UserError for a matrix that does not fit.
        """
        decoding = self.begin()
        decoding.advance(loglikes)
        return decoding.lattice()

    def begin(self) -> Decoding:
        """Begin an utterance that is decoded part by part; one that was begun before cannot go on."""
        self._decoding = Decoding(self)
        return self._decoding

    def _begin(self) -> tuple[int, int]:
        """Begin the search; returns the numbers of tokens and of links."""
        self._tokens, self._links, tokens, links = search.begin(
            self._states, self._arcs, self._start, self._beams["beam"], self._tokens, self._links, self._where)
        return tokens, links

    def _advance(self, loglikes: np.ndarray, done: int, first_token: np.ndarray, first_link: np.ndarray, stale: np.ndarray, num_tokens: int,
                 num_links: int) -> tuple[int, int]:
        """Search the next frames, as `search.advance`; returns the numbers of tokens and of links."""
        self._tokens, self._links, tokens, links = search.advance(
            self._states, self._arcs, loglikes, done, np.float32(self.options.acwt), self._beams, self._tokens, self._links, self._where,
            first_token, first_link, stale, num_tokens, num_links)
        return tokens, links

    def _labels(self, arcs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The transition-ids and the words of arcs of the search."""
        return self._ilabel[arcs], self._olabel[arcs]


@dataclass
class BestPath:
    """The best path of an utterance so far: its transition-ids, its words, and by how much the best complete path is worse."""

    transition_ids: np.ndarray
    words: list[int]
    final_relative_cost: float  # inf where no final state is reached


class Decoding:
    """An utterance on its way through a decoder, whose working memory it uses: see `LatticeDecoder.begin`."""

    def __init__(self, decoder: LatticeDecoder) -> None:
        self._decoder = decoder
        self.frames = 0
        self._loglikes: list[np.ndarray] = []
        self._first_token, self._first_link, self._stale = np.zeros(2, np.int64), np.zeros(2, np.int64), np.ones(1, np.bool_)
        self._num_tokens, self._num_links = decoder._begin()

    def advance(self, loglikes: np.ndarray) -> None:
        """Search on over the next frames, `loglikes` [frames, pdfs]; raises UserError for a matrix that does not fit."""
        d = self._current()
        if loglikes.ndim != 2 or loglikes.shape[1] < d.num_pdfs:
            raise UserError(f"the log-likelihoods have shape {loglikes.shape} where [frames, at least {d.num_pdfs} pdfs] is expected; make "
                            "the graph of this model with utils/mkgraph.sh.")
        loglikes = np.ascontiguousarray(loglikes, np.float32)
        if not np.isfinite(loglikes).all():
            raise UserError("the log-likelihoods hold values that are not finite; check the features and the model.")
        if len(loglikes) and self._num_tokens:
            self._make_room(self.frames + len(loglikes))
            self._num_tokens, self._num_links = d._advance(loglikes, self.frames, self._first_token, self._first_link, self._stale,
                                                           self._num_tokens, self._num_links)
        self._loglikes.append(loglikes)
        self.frames += len(loglikes)

    def _make_room(self, frames: int) -> None:
        """Make the arrays of frames long enough for so many."""
        if frames + 2 > len(self._first_token):
            more = max(frames + 2, 2 * len(self._first_token)) - len(self._first_token)
            self._first_token, self._first_link = (np.append(a, np.zeros(more, np.int64)) for a in (self._first_token, self._first_link))
            self._stale = np.append(self._stale, np.ones(more, np.bool_))

    def best_path(self) -> BestPath | None:
        """Find the best path so far, whether it ends in a final state or not; None where no path survives the beam."""
        d = self._current()
        if not self._num_tokens:
            return None
        last = int(self._first_token[self.frames])
        arcs, relative = search.best_path(d._states, d._arcs, d._tokens, d._links, last, self._num_tokens)
        ids, words = d._labels(arcs)
        return BestPath(ids[ids > 0], words[words > 0].tolist(), float(relative))

    def lattice(self) -> Lattice | None:
        """End the utterance: its lattice, as `LatticeDecoder.decode` gives it."""
        d, frames = self._current(), self.frames
        d._decoding = None
        if not (frames and self._num_tokens):
            return None
        first_token, first_link = self._first_token[:frames + 2], self._first_link[:frames + 2]
        reached = search.finish(d._states, d._arcs, d._beams["lattice_beam"], d._tokens, d._links, first_token, first_link, frames)
        order = search.topological_order(d._tokens, d._links, first_token)
        if len(order) < first_token[-1]:
            raise UserError("the decoding graph has a cycle of arcs without input; make it again (utils/mkgraph.sh) from a language model "
                            "and lexicon without empty words.")
        offset, target, arc = search.ordered_links(d._tokens, d._links, order, first_link[-1])
        loglikes = np.concatenate(self._loglikes)
        frame = np.repeat(np.arange(frames + 1, dtype=np.int32), np.diff(first_token))
        source_frame = np.repeat(frame, np.diff(offset))
        graph_arc = d._arcs[arc]
        pdf = graph_arc["pdf"]
        acoustic = np.where(pdf >= 0, -loglikes[np.minimum(source_frame, frames - 1), pdf], np.float32(0))
        last = frame == frames
        final = np.full(len(order), np.inf, np.float32)
        final[last] = d._states["final"][d._tokens["state"][order[last]]] if reached else 0
        return Lattice.from_arcs(offset, *d._labels(arc), graph_arc["weight"].copy(), acoustic, target, final, reached)

    def _current(self) -> LatticeDecoder:
        if self._decoder._decoding is not self:
            raise RuntimeError("this utterance has ended, or its decoder has begun another")
        return self._decoder
