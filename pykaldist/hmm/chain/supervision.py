"""Numerators of the chain (LF-MMI) objective: the pdfs that a sequence may have in each of its frames, as acceptors of pdf + 1.

**From an alignment.** The phones of an utterance and their lengths, in input frames, say which phones are allowed in output frame t, input
frame t x `frame_subsampling_factor`: those that are said between `right_tolerance` frames before it and `left_tolerance` frames after it.
The graph of the phone sequence, without transition probabilities, goes over the frames one arc each, by arcs of allowed phones only. A
chunk of frames of it (`frame_range`) begins in any state of its first frame and ends in any of its last. Determinised, it has each sequence
of pdfs once.

**From a lattice** of a transcript (`supervision_of_lattice`). Its phone sequences are those of the lattice, and a phone is allowed in a
frame where any arc of it is, with its tolerance. With `lm_scale` a path keeps that share of its cost in the lattice (of pronunciations
and optional silences), pushed towards the beginning, and the rest, 1 - `lm_scale`, is to come from the normalisation FST.

**From a transcript alone** (flat start). The training graph is taken as it is, self-loops included, and any time is allowed: H. Hadian et
al., "End-to-end speech recognition using lattice-free MMI", Interspeech 2018.

Both are composed with the normalisation FST (`den_graph.py`), so that a path costs what it costs in the denominator, and the objective is a
log-probability.

A graph with loops goes over T frames as a graph without (`over_frames`): state s before frame t becomes a state where some path through it
has T frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

import kaldifst
import numpy as np

from pykaldist.errors import UserError
from pykaldist.hmm.chain.den_graph import as_acceptor, graph_of_phones, without_epsilons
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.hmm.tree.tree import ContextDependency
from pykaldist.io.fst import Fst
from pykaldist.io.fstops import from_kaldifst, to_kaldifst
from pykaldist.kernels import kernel
from pykaldist.options import option


@dataclass
class SupervisionOptions:
    """The options of numerators that are made of alignments."""

    left_tolerance: int = option(5, "input frames that a phone may begin earlier than in the alignment")
    right_tolerance: int = option(5, "input frames that a phone may end later than in the alignment")
    frame_subsampling_factor: int = option(3, "input frames to an output frame")
    lm_scale: float = option(0.0, "share of a lattice's costs in its numerator, below 1; the denominator's have the rest")

    def __post_init__(self) -> None:
        if self.left_tolerance < 0 or self.right_tolerance < 0 or self.frame_subsampling_factor < 1:
            raise UserError(f"--left-tolerance {self.left_tolerance} --right-tolerance {self.right_tolerance} --frame-subsampling-factor "
                            f"{self.frame_subsampling_factor}: expected tolerances that are not negative, and a factor of at least 1.")
        if self.left_tolerance + self.right_tolerance + 1 < self.frame_subsampling_factor:
            raise UserError(f"--left-tolerance {self.left_tolerance} --right-tolerance {self.right_tolerance}: some phones would have no "
                            f"frame with --frame-subsampling-factor {self.frame_subsampling_factor}; raise the tolerances.")
        if not 0 <= self.lm_scale < 1:
            raise UserError(f"--lm-scale {self.lm_scale}: expected a share from 0 to below 1.")


@dataclass(frozen=True)
class PhoneLattice:
    """Phones in time: an acceptor of phones without epsilons, states in topological order, with costs of pronunciation and language model.

    State s stands behind `times[s]` input frames (int64); those of all final states are equal.
    """

    acceptor: Fst
    times: np.ndarray

    def write(self, stream: IO[bytes]) -> None:
        """Write it as `parse` reads it: the number of states, `times`, and the acceptor as an OpenFst file."""
        stream.write(np.int64(len(self.times)).tobytes() + self.times.astype(np.int64).tobytes() + self.acceptor.to_bytes())

    @classmethod
    def parse(cls, data: bytes) -> PhoneLattice:
        """Read the bytes that `write` has written."""
        end = 8 * (1 + int(np.frombuffer(data, np.int64, 1)[0]))
        return cls(Fst.parse(data[end:], "a phone lattice"), np.frombuffer(data[8:end], np.int64))


@kernel
def _alive(source: np.ndarray, target: np.ndarray, allowed: np.ndarray, start: int, final: np.ndarray) -> np.ndarray:
    """Of each frame's states, those that a path from the start to a final state after the last frame goes through (T + 1, S)."""
    frames, states = len(allowed), len(final)
    alive = np.zeros((frames + 1, states), np.bool_)
    alive[0, start] = True
    for t in range(frames):
        for a in range(len(source)):
            if allowed[t, a] and alive[t, source[a]]:
                alive[t + 1, target[a]] = True
    alive[frames] &= final < np.inf
    for t in range(frames - 1, -1, -1):
        ahead = np.zeros(states, np.bool_)
        for a in range(len(source)):
            if allowed[t, a] and alive[t + 1, target[a]]:
                ahead[source[a]] = True
        alive[t] &= ahead
    return alive


def over_frames(fst: Fst, frames: int, allowed: np.ndarray | None = None) -> Fst | None:
    """The paths of `frames` arcs of an acceptor without epsilons, as one without loops whose states are sorted by time; None without any.

    `allowed` (frames, A), bool, says which arcs may be taken in which frame.
    """
    source = fst.source
    may = np.ones((frames, fst.num_arcs), np.bool_) if allowed is None else np.ascontiguousarray(allowed)
    alive = _alive(source, fst.nextstate, may, fst.start, fst.final)
    if not alive[0].any():
        return None
    number = (np.cumsum(alive) - 1).reshape(alive.shape)
    frame, arc = np.nonzero(may & alive[:-1, source] & alive[1:, fst.nextstate])
    final = np.full(int(alive.sum()), np.inf, np.float32)
    final[number[-1][alive[-1]]] = fst.final[alive[-1]]
    return Fst.from_arcs(0, final, number[frame, source[arc]], fst.ilabel[arc], fst.olabel[arc], fst.weight[arc],
                         number[frame + 1, fst.nextstate[arc]])


@kernel
def _times(states: int, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    times = np.full(states, -1)
    times[0] = 0
    for a in range(len(source)):
        after = times[source[a]] + 1
        if times[source[a]] < 0 or (times[target[a]] >= 0 and times[target[a]] != after):
            times[0] = -1
            return times
        times[target[a]] = after
    return times


def state_times(fst: Fst) -> np.ndarray:
    """The number of arcs on the way to each state, int64 (S,).

    Raises UserError where the states are not sorted by time, or paths to one state are of different lengths.
    """
    times = _times(fst.num_states, fst.source, fst.nextstate)
    if fst.start != 0 or times.min() < 0 or (np.diff(times) < 0).any():
        raise UserError("a numerator has paths of different lengths, or states that are not sorted by time; make it again "
                        "(steps/nnet3/chain/train.py).")
    return times


def phone_supervision(phones: Sequence[int], lengths: Sequence[int], tree: ContextDependency, model: TransitionModel,
                      options: SupervisionOptions, convert_to_pdfs: bool = True) -> Fst | None:
    """Make the numerator of a whole utterance, of its phones and their lengths in input frames; its states are sorted by time.

    It has no costs. With `convert_to_pdfs` false its labels are transition-ids. None where the phones do not fit into the output frames.
    """
    if not len(phones) or len(phones) != len(lengths) or min(lengths) < 1:
        raise UserError(f"an utterance has {len(phones)} phones and {len(lengths)} lengths; expected as many, each of at least one frame.")
    labels, ends = np.asarray(phones), np.cumsum(lengths)
    count = len(labels)
    row = Fst.from_arcs(0, np.where(np.arange(count + 1) == count, 0.0, np.inf), np.arange(count), labels, labels, np.zeros(count),
                        np.arange(count) + 1)
    return _in_time(row, labels, ends - np.asarray(lengths), ends, tree, model, options, convert_to_pdfs)


def supervision_of_lattice(lattice: PhoneLattice, tree: ContextDependency, model: TransitionModel, options: SupervisionOptions,
                           convert_to_pdfs: bool = True) -> Fst | None:
    """Make the numerator of a whole utterance from its lattice; its states are sorted by time. Kaldi's --lattice-input=true.

    None where no phone sequence fits into the output frames. Raises UserError for a lattice without phones, or whose paths are not of one
    length.
    """
    fst, times = lattice.acceptor, lattice.times
    final = np.flatnonzero(fst.final < np.inf)
    if fst.num_arcs == 0 or not len(final) or (fst.ilabel == 0).any():
        raise UserError("a phone lattice has no phones, no end, or arcs without a phone; make the lattice again "
                        "(steps/nnet3/align_lats.sh, steps/align_fmllr_lats.sh).")
    if len(set(times[final].tolist())) > 1:
        raise UserError(f"a phone lattice has paths of {times[final].min()} to {times[final].max()} frames; make the lattice again "
                        "(steps/nnet3/align_lats.sh, steps/align_fmllr_lats.sh).")
    begins, ends = times[fst.source], times[fst.nextstate]
    sequences = _pushed(from_kaldifst(_compact(to_kaldifst(_scaled(fst, options.lm_scale)))))
    return _in_time(sequences, fst.ilabel, begins, ends, tree, model, options, convert_to_pdfs)


def _scaled(fst: Fst, scale: float) -> Fst:
    """The acceptor with its costs times `scale`."""
    final = np.where(fst.final < np.inf, np.float32(scale) * np.where(fst.final < np.inf, fst.final, 0), np.inf).astype(np.float32)
    return Fst(fst.start, final, fst.offset, fst.ilabel, fst.ilabel, np.float32(scale) * fst.weight, fst.nextstate)


def _pushed(fst: Fst) -> Fst:
    """The acceptor without loops with the same differences of costs between paths, the best of which out of any state costs nothing."""
    to_end = _costs_to_end(fst.offset, fst.weight.astype(np.float64), fst.nextstate, fst.final.astype(np.float64))
    return Fst(fst.start, (fst.final - to_end).astype(np.float32), fst.offset, fst.ilabel, fst.olabel,
               (fst.weight + to_end[fst.nextstate] - to_end[fst.source]).astype(np.float32), fst.nextstate)


@kernel
def _costs_to_end(offset: np.ndarray, weight: np.ndarray, target: np.ndarray, final: np.ndarray) -> np.ndarray:
    best, changed = final.copy(), True
    while changed:  # states may stand in any order
        changed = False
        for s in range(len(final) - 1, -1, -1):
            for a in range(offset[s], offset[s + 1]):
                if weight[a] + best[target[a]] < best[s]:
                    best[s] = weight[a] + best[target[a]]
                    changed = True
    return best


def _in_time(sequences: Fst, phones: np.ndarray, begins: np.ndarray, ends: np.ndarray, tree: ContextDependency, model: TransitionModel,
             options: SupervisionOptions, convert_to_pdfs: bool) -> Fst | None:
    """The paths of an acceptor of phones over the output frames, by phones that are near in time.

    Phone `phones[i]` is said from input frame `begins[i]` to before `ends[i]`; the last end is the utterance's.
    """
    input_frame = np.arange(0, int(ends.max()), options.frame_subsampling_factor)[:, None]
    near = (input_frame >= begins - options.left_tolerance) & (input_frame < ends + options.right_tolerance)
    may = np.zeros((len(near), max(*model.topology.phones, int(phones.max())) + 1), np.bool_)
    frame, place = np.nonzero(near)
    may[frame, phones[place]] = True
    graph = graph_of_phones(sequences, tree, model, 0.0, 0.0)
    acceptor = Fst(graph.start, graph.final, graph.offset, graph.ilabel, graph.ilabel, graph.weight, graph.nextstate)
    tids = from_kaldifst(without_epsilons(acceptor))
    found = over_frames(tids, len(near), may[:, model.tid2phone[tids.ilabel]])
    return found if found is None or not convert_to_pdfs else as_acceptor(found, model)


def frame_range(supervision: Fst, begin: int, frames: int) -> Fst:
    """The frames `begin` to `begin + frames` of a numerator: a path begins in any state of the first and ends behind the last."""
    times = state_times(supervision)
    if not 0 <= begin < begin + frames <= times[-1]:
        raise UserError(f"frames {begin} to {begin + frames} of a numerator of {times[-1]} frames do not exist.")
    number = np.maximum(np.arange(len(times)) - np.searchsorted(times, begin + 1) + 1, 0)  # one state for all of the first frame
    end = int(number[np.searchsorted(times, begin + frames)])  # and one behind the last
    source, keep = supervision.source, slice(supervision.offset[np.searchsorted(times, begin)],
                                             supervision.offset[np.searchsorted(times, begin + frames)])
    return Fst.from_arcs(0, np.where(np.arange(end + 1) == end, 0.0, np.inf), number[source[keep]], supervision.ilabel[keep],
                         supervision.olabel[keep], supervision.weight[keep], np.minimum(number[supervision.nextstate[keep]], end))


def _compact(fst: Any) -> Any:
    found = kaldifst.determinize(fst)
    kaldifst.minimize(found)
    return found


class Normalizer:
    """Gives numerators the costs that their paths have in the normalisation FST, times `scale` (1 - `lm_scale` of lattices)."""

    def __init__(self, normalization: Fst, scale: float = 1.0) -> None:
        self._fst = to_kaldifst(_scaled(normalization, scale))
        kaldifst.arcsort(self._fst, "ilabel")

    def _composed(self, fst: Any) -> Any:
        kaldifst.arcsort(fst, "olabel")  # composition finds arcs of an unsorted FST by halves, and misses some
        return kaldifst.compose(fst, self._fst)

    def chunk(self, supervision: Fst) -> Fst | None:
        """A numerator of one chunk with its costs, states sorted by time; None where the denominator has no path of it."""
        composed = self._composed(_compact(to_kaldifst(supervision)))
        if composed.num_states == 0:
            return None
        found = from_kaldifst(_compact(composed))
        return over_frames(found, int(state_times(supervision)[-1]))

    def flat_start(self, graph: Fst, model: TransitionModel) -> Fst | None:
        """A numerator of a training graph of transition-ids with its costs, loops left; None where the denominator has no path of it."""
        without = from_kaldifst(without_epsilons(graph))  # first with its words, as Kaldi: what they keep apart stays apart
        composed = self._composed(without_epsilons(as_acceptor(without, model)))
        return from_kaldifst(composed) if composed.num_states else None
