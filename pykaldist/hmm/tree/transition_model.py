"""Transition model: Kaldi's numbering of transition-ids, and the probabilities of the transitions between HMM states.

A *transition-state* is a tuple (phone, hmm_state, forward_pdf, self_loop_pdf), numbered from 1 in sorted order. It has as many
*transition-ids* as its HMM state has transitions in the topology; they are numbered from 1, state by state. So a transition_id
says which phone, which HMM state, which pdf, and which way out. An alignment is a transition_id a frame.
Source: Kaldi's hmm/transition-model.h.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from pykaldist.errors import UserError
from pykaldist.hmm.lang.topology import NO_PDF, Topology
from pykaldist.hmm.tree.transition_states import TransitionStates
from pykaldist.hmm.tree.tree import ContextDependency
from pykaldist.io.kaldi import KaldiReader, KaldiWriter

LOWEST_LOG_PROB = np.float32(np.log(1e-10))
MIN_COUNT = 5.0
PROBABILITY_FLOOR = 0.01


def check_range(ids: np.ndarray, low: int, high: int, where: str) -> None:
    """Check ids; raises UserError where one is outside low .. high."""
    if len(ids) and not low <= ids.min() <= ids.max() <= high:
        bad = ids.min() if ids.min() < low else ids.max()
        raise UserError(f"{where}: found the id {bad}, the model has {low} to {high}; alignment and model are of different systems.")


class TransitionModel:
    """The transition model: topology, transition-states, and log-probabilities.

    `log_probs` are float32; index 0 is unused, so that a transition_id is an index.

    `tuples` is int32 (num_states, 4): phone, hmm_state, forward_pdf, self_loop_pdf, sorted. The arrays `tid2pdf`, `tid2phone`,
    `tid2hmm_state`, `tid2state` (transition-state, from 1), `tid2destination` (HMM state), `tid_is_self_loop`, `tid_is_final`
    (leads out of the phone) are indexed by transition_id; their entry 0 is 0 or False.
    """

    def __init__(self, topology: Topology, tuples: np.ndarray, log_probs: np.ndarray | None = None) -> None:
        self.topology, self.tuples = topology, np.ascontiguousarray(tuples, dtype=np.int32).reshape(-1, 4)
        counts, destination, initial = [], [0], [1.0]
        for phone, hmm_state, _, _ in self.tuples.tolist():
            transitions = topology.entry(phone)[hmm_state].transitions
            counts.append(len(transitions))
            destination += [to for to, _ in transitions]
            initial += [probability for _, probability in transitions]
        #: first transition_id of each transition-state (index from 1), and one past the last
        self.state2first = np.concatenate([[0, 1], 1 + np.cumsum(counts)]).astype(np.int32)
        states = np.arange(1, len(counts) + 1, dtype=np.int32)
        self.tid2state = np.concatenate([[0], np.repeat(states, counts)]).astype(np.int32)
        rows = self.tuples[np.maximum(self.tid2state - 1, 0)]
        self.tid2destination = np.array(destination, dtype=np.int32)
        self.tid2phone, self.tid2hmm_state = rows[:, 0].copy(), rows[:, 1].copy()
        self.tid_is_self_loop = self.tid2destination == self.tid2hmm_state
        self.tid2pdf = np.where(self.tid_is_self_loop, rows[:, 3], rows[:, 2]).astype(np.int32)
        last = np.array([0, *(len(topology.entry(phone)) - 1 for phone in self.tid2phone[1:].tolist())], dtype=np.int32)
        self.tid_is_final = self.tid2destination == last
        self.tid2phone[0] = self.tid2hmm_state[0] = self.tid2pdf[0] = 0
        self.tid_is_self_loop[0] = self.tid_is_final[0] = False
        self.num_pdfs = int(self.tuples[:, 2:].max()) + 1
        self.num_transition_ids = len(destination) - 1
        self.log_probs = np.log(np.array(initial)).astype(np.float32) if log_probs is None else log_probs

    @classmethod
    def from_tree(cls, tree: ContextDependency, topology: Topology) -> TransitionModel:
        """Make the initial model: every (phone, HMM state) with every pdf it can have in any context; the topology's probabilities.

        Where self-loops have pdfs of their own (chain models), with every pair of pdfs that a state has in one and the same context.
        """
        tuples = set()
        for phone in topology.phones:
            for hmm_state, state in enumerate(topology.entry(phone)):
                if state.forward_pdf_class == NO_PDF:
                    continue
                forward = tree.possible_pdfs(phone, state.forward_pdf_class)
                if state.self_loop_pdf_class == state.forward_pdf_class:
                    tuples |= {(phone, hmm_state, pdf, pdf) for pdf in forward}
                else:
                    windows = _windows(topology.phones, phone, tree.width, tree.central)
                    pairs = np.stack([tree.pdfs(windows, pdf_class) for pdf_class in (state.forward_pdf_class, state.self_loop_pdf_class)])
                    tuples |= {(phone, hmm_state, f, s) for f, s in np.unique(pairs, axis=1).T.tolist()}
        return cls(topology, np.array(sorted(tuples), dtype=np.int32))

    @cached_property
    def _state_of(self) -> dict[tuple[int, int, int, int], int]:
        return {(phone, hmm_state, forward_pdf, self_loop_pdf): number
                for number, (phone, hmm_state, forward_pdf, self_loop_pdf) in enumerate(self.tuples.tolist(), 1)}

    def tuple2state(self, phone: int, hmm_state: int, forward_pdf: int, self_loop_pdf: int | None = None) -> int:
        """The transition-state (from 1) of a tuple; the self-loop's pdf is the forward one unless given. KeyError if unknown."""
        return self._state_of[phone, hmm_state, forward_pdf, forward_pdf if self_loop_pdf is None else self_loop_pdf]

    @cached_property
    def state2self_loop(self) -> np.ndarray:
        """The self-loop's transition_id of each transition-state, 0 where it has none (int32, index 0 unused)."""
        table = np.zeros(len(self.tuples) + 1, dtype=np.int32)
        loops = np.flatnonzero(self.tid_is_self_loop)
        table[self.tid2state[loops]] = loops
        return table

    def non_self_loop_log_probs(self) -> np.ndarray:
        """log(1 - p(self-loop)) of each transition-state (float32, index 0 unused); 0 where there is no self-loop."""
        loops = self.state2self_loop
        escape = 1.0 - np.exp(self.log_probs[loops].astype(np.float64))
        floored = np.where(escape > 0, np.log(np.maximum(escape, 1e-300)), LOWEST_LOG_PROB)
        return np.where(loops > 0, floored, 0.0).astype(np.float32)

    def scaled_log_probs(self, transition_scale: float = 1.0, self_loop_scale: float = 1.0) -> np.ndarray:
        """The log-probability of each transition_id as graphs use it (float32, index 0 unused).

        A self-loop counts `self_loop_scale` log p. Another transition counts `self_loop_scale` log(1 - p(self-loop)) plus
        `transition_scale` times its log-probability given that the state is left.
        """
        escape = self.non_self_loop_log_probs()[self.tid2state]
        forward = self_loop_scale * escape + transition_scale * (self.log_probs - escape)
        return np.where(self.tid_is_self_loop, self_loop_scale * self.log_probs, forward).astype(np.float32)

    def update(self, counts: np.ndarray, floor: float = PROBABILITY_FLOOR, min_count: float = MIN_COUNT) -> None:
        """Set the probabilities to their maximum-likelihood estimate from `counts` (float64 by transition_id, index 0 unused).

        A transition-state with fewer than `min_count` counts keeps its probabilities; none falls below `floor` (floored and
        renormalised three times, as Kaldi's TransitionModel::MleUpdate does). States with one transition stay as they are.
        """
        state = self.tid2state[1:] - 1
        total = np.bincount(state, counts[1:])
        probs = counts[1:] / np.maximum(total, 1e-300)[state]
        for _ in range(3):
            probs = np.maximum(probs / np.maximum(np.bincount(state, probs), 1e-300)[state], floor)
        several = np.bincount(state) > 1
        log_probs = self.log_probs.copy()
        log_probs[1:] = np.where(((total >= min_count) & several)[state], np.log(probs), log_probs[1:])
        self.log_probs = log_probs

    @classmethod
    def read(cls, reader: KaldiReader) -> TransitionModel:
        """Read `<TransitionModel> ... </TransitionModel>`, binary or text."""
        states = TransitionStates.read(reader)
        reader.expect("<LogProbs>")
        log_probs = reader.vector().astype(np.float32)
        states.check_count(reader, len(log_probs))
        reader.expect("</LogProbs>", "</TransitionModel>")
        return cls(states.topology, np.array(states.tuples, dtype=np.int32), log_probs)

    def write(self, writer: KaldiWriter) -> None:
        """Write the model as Kaldi does: `<Triples>` where self-loops have the pdf of the forward transition, else `<Tuples>`."""
        width = 3 if self.topology.is_hmm else 4
        kind = "Triples" if width == 3 else "Tuples"
        writer.token("<TransitionModel>")
        writer.end_line()
        self.topology.write(writer)
        writer.token(f"<{kind}>")
        writer.integer(len(self.tuples))
        writer.end_line()
        for row in self.tuples.tolist():
            for value in row[:width]:
                writer.integer(value)
            writer.end_line()
        writer.token(f"</{kind}>")
        writer.end_line()
        writer.token("<LogProbs>")
        writer.end_line()
        writer.vector(self.log_probs)
        writer.token("</LogProbs>")
        writer.end_line()
        writer.token("</TransitionModel>")
        writer.end_line()


def _windows(phones: Sequence[int], phone: int, width: int, central: int) -> np.ndarray:
    """The windows (rows x width) of a phone in all contexts, 0 beyond the edges of an utterance."""
    places = [[phone] if place == central else [0, *phones] for place in range(width)]
    return np.stack(np.meshgrid(*places, indexing="ij"), -1).reshape(-1, width)
