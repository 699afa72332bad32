"""The window of phones and the HMM state of every frame of an alignment.

A frame of the j-th phone of an utterance has the window (phone[j - P], ..., phone[j - P + N - 1]), 0 beyond the edges (Kaldi's N and P:
the tree's `width` and `central`). A corpus has far fewer different windows than frames, so whatever depends on them (a tree's answers,
statistics for a tree) is worked out once for each pair of window and HMM state, and spread over the frames by one gather.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pykaldist.errors import ALIGNING, UserError
from pykaldist.hmm.tree.phone_segments import phone_segments
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.hmm.tree.tree import ContextDependency


@dataclass(frozen=True)
class ContextFrames:
    """The different states in context of an alignment, and the one of every frame.

    The states are `windows` (E, width) int32 and `hmm_state` (E,) int32; where self-loops have pdfs of their own (chain models), the
    frames of self-loops are states of their own, `self_loop` (E,) bool. Of every frame there is `state`, a row of these (int32, -1 where
    the frame is not aligned), and `transition`, which of the transitions out of its HMM state it takes.
    """

    windows: np.ndarray
    hmm_state: np.ndarray
    self_loop: np.ndarray
    state: np.ndarray
    transition: np.ndarray

    @classmethod
    def of_alignments(cls, tids: np.ndarray, offsets: np.ndarray, model: TransitionModel, width: int, central: int) -> ContextFrames:
        """Find the states in context from the transition_ids of all frames of a corpus (0 throughout an utterance that failed).

        Utterance u has the frames `offsets[u]:offsets[u + 1]`.
        """
        parts, repeats = [np.zeros((0, width), dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
        for first, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
            if tids[first:end].all():
                phones, _, lengths = phone_segments(tids[first:end], model)
                padded = np.concatenate([np.zeros(central, dtype=np.int64), phones, np.zeros(width - 1 - central, dtype=np.int64)])
                parts.append(np.lib.stride_tricks.sliding_window_view(padded, width))
                repeats.append(lengths.astype(np.int64))
        aligned = np.flatnonzero(tids)
        num_phones, num_states = max(model.topology.phones) + 1, max(map(len, model.topology.entries))
        code = np.zeros(sum(map(len, parts)), dtype=np.int64)
        for column in np.concatenate(parts).T:
            code = code * num_phones + column
        code = np.repeat(code, np.concatenate(repeats)) * num_states + model.tid2hmm_state[tids[aligned]]
        if not model.topology.is_hmm:
            code = code * 2 + model.tid_is_self_loop[tids[aligned]]
        different, row = np.unique(code, return_inverse=True)
        rest, self_loop = np.divmod(different, 2) if not model.topology.is_hmm else (different, np.zeros_like(different))
        rest, hmm_state = np.divmod(rest, num_states)
        windows = np.empty((len(different), width), dtype=np.int32)
        for place in range(width - 1, -1, -1):
            rest, windows[:, place] = np.divmod(rest, num_phones)
        state = np.full(len(tids), -1, dtype=np.int32)
        state[aligned] = row
        transition = np.zeros(len(tids), dtype=np.int32)
        transition[aligned] = tids[aligned] - model.state2first[model.tid2state[tids[aligned]]]
        return cls(windows, hmm_state.astype(np.int32), self_loop.astype(bool), state, transition)

    def pdf_class(self, model: TransitionModel, central: int) -> np.ndarray:
        """The pdf-class of each state in context (E,) int32."""
        states = (model.topology.entry(phone)[s] for phone, s in zip(self.windows[:, central].tolist(), self.hmm_state, strict=True))
        return np.array([state.self_loop_pdf_class if loop else state.forward_pdf_class
                         for state, loop in zip(states, self.self_loop, strict=True)], dtype=np.int32)


def convert_alignments(tids: np.ndarray, offsets: np.ndarray, old: TransitionModel, tree: ContextDependency,
                       new: TransitionModel) -> np.ndarray:
    """Convert alignments to transition_ids of another tree and model: the same paths through the same HMMs (Kaldi's convert-ali).

    They are int32; 0 stays 0.

    Raises UserError where a model's self-loops have pdfs of their own, or the models have different phones or HMMs.
    """
    if not (old.topology.is_hmm and new.topology.is_hmm):
        raise UserError("alignments of models whose self-loops have pdfs of their own (chain models) cannot be converted.")
    for phone in np.unique(old.tid2phone[tids[tids > 0]]).tolist():
        before, after = ([[to for to, _ in state.transitions] for state in model.topology.entry(phone)] for model in (old, new))
        if before != after:
            raise UserError(f"phone {phone} has another HMM in the alignment's model than in the language directory; align again "
                            f"({ALIGNING}).")
    frames = ContextFrames.of_alignments(tids, offsets, old, tree.width, tree.central)
    pdf_class = frames.pdf_class(new, tree.central)
    first = np.array([new.state2first[new.tuple2state(window[tree.central], s, tree.compute(window, c))] for window, s, c in
                      zip(frames.windows.tolist(), frames.hmm_state.tolist(), pdf_class.tolist(), strict=True)], dtype=np.int32)
    return np.where(frames.state >= 0, first[frames.state] + frames.transition, 0).astype(np.int32)
