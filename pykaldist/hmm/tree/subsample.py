"""Conversion of alignments to another topology and a lower frame rate (Kaldi's convert-ali --frame-subsampling-factor).

Of the old alignment only the phones and their lengths stay. With the factor F and the shift s (F - 1, unless frames are repeated), a phone
of the old frames [b, e) gets the new frames [(b + s) // F, (e + s) // F); so a new frame stands for the old one t F + F - 1 - s, and there
are as many as subsample-feats --n=F leaves. A phone that is now shorter than its HMM allows takes a frame, again and again, from the
nearest phone that has one to spare. Within a phone the frames go through its HMM by the shortest way, and those that are left go into
the self-loops on it, evenly. (A chain model's HMM has one way; for others Kaldi draws a random one.)

With `repeat_frames` the alignment keeps its length: it is converted once for each shift, and new frame t is frame t // F of the alignment
with the shift F - 1 - t % F.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pykaldist.errors import UserError
from pykaldist.hmm.lang.topology import Entry
from pykaldist.hmm.tree.context import convert_alignments
from pykaldist.hmm.tree.phone_segments import phone_segments
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.hmm.tree.tree import ContextDependency
from pykaldist.kernels import kernel


@kernel
def _borrow(lengths: np.ndarray, least: np.ndarray) -> bool:
    """Give phones below their least length frames of the nearest ones above it, of the left one where both are as near; in place."""
    changed = True
    while changed:
        changed = False
        for i in range(len(lengths)):
            if lengths[i] >= least[i]:
                continue
            changed = True
            nearest, lender, distance = 1 << 30, -1, 0
            for j in range(i - 1, -1, -1):
                if lengths[j] > least[j]:
                    nearest, lender = distance, j
                    break
                distance += lengths[j]
            distance = 0
            for j in range(i + 1, len(lengths)):
                if lengths[j] > least[j]:
                    if distance < nearest:
                        lender = j
                    break
                distance += lengths[j]
            if lender < 0:
                return False
            lengths[i] += 1
            lengths[lender] -= 1
    return True


def subsampled_lengths(lengths: np.ndarray, least: np.ndarray, factor: int, shift: int) -> np.ndarray | None:
    """The phones' lengths at 1/`factor` of the frame rate, none below its `least` (all (P,) integers); None where they do not fit."""
    bounds = (np.concatenate([[0], np.cumsum(lengths)]) + shift) // factor
    found = np.diff(bounds).astype(np.int64)
    return found if _borrow(found, np.asarray(least, dtype=np.int64)) else None


def _shortest_way(entry: Entry) -> list[int]:
    """The states on the shortest way through an HMM, the final one left out."""
    came_from, reached = {0: -1}, [0]
    for state in reached:
        for to, _ in entry[state].transitions:
            if to not in came_from:
                came_from[to] = state
                reached.append(to)
    way, state = [], came_from[len(entry) - 1]
    while state >= 0:
        way.append(state)
        state = came_from[state]
    return way[::-1]


@dataclass
class Converter:
    """Converts alignments of the model `old` to the model `new` of a `tree`, whose phones may have other HMMs, at 1/`factor` of the frames.
    """

    old: TransitionModel
    tree: ContextDependency
    new: TransitionModel
    factor: int = 1
    repeat_frames: bool = False

    def __post_init__(self) -> None:
        if self.factor < 1:
            raise UserError(f"--frame-subsampling-factor {self.factor}: expected a factor of at least 1.")
        self._ways = {phone: _shortest_way(self.new.topology.entry(phone)) for phone in self.new.topology.phones}
        self._least = np.zeros(max(self.new.topology.phones) + 1, dtype=np.int64)
        self._least[self.new.topology.phones] = [self.new.topology.min_length(phone) for phone in self.new.topology.phones]
        self._tids: dict[tuple[int, ...], tuple[np.ndarray, np.ndarray]] = {}

    def convert(self, tids: np.ndarray) -> np.ndarray | None:
        """The new transition_ids (int32) of an alignment; None where the phones do not fit into the frames.

        Raises UserError where the new topology lacks a phone that is aligned.
        """
        phones, _, lengths = phone_segments(tids, self.old)
        if not np.isin(phones, self.new.topology.phones).all():
            unknown = int(phones[~np.isin(phones, self.new.topology.phones)][0])
            raise UserError(f"phone {unknown} of the alignment has no topology in the language directory, which is of another phone "
                            "set: take the language directory that was made from the alignment's.")
        if self.factor == 1 and self._same_hmms(phones):
            return convert_alignments(tids, np.array([0, len(tids)]), self.old, self.tree, self.new)
        if not self.repeat_frames or self.factor == 1:
            return self._with_shift(phones, lengths, self.factor - 1)
        repeated = np.zeros(len(tids), dtype=np.int32)
        for first in range(self.factor):
            shifted = self._with_shift(phones, lengths, self.factor - 1 - first)
            if shifted is None:
                return None
            repeated[first :: self.factor] = shifted
        return repeated

    def _same_hmms(self, phones: np.ndarray) -> bool:
        return all(self.old.topology.entry(phone) == self.new.topology.entry(phone) for phone in np.unique(phones).tolist())

    def _with_shift(self, phones: np.ndarray, lengths: np.ndarray, shift: int) -> np.ndarray | None:
        new_lengths = subsampled_lengths(lengths, self._least[phones], self.factor, shift)
        if new_lengths is None:
            return None
        parts = []
        for window, length in zip(self._windows(phones), new_lengths.tolist(), strict=True):
            parts.append(self._one_phone(window, length))
            if parts[-1] is None:
                return None
        return np.concatenate([part for part in parts if part is not None])

    def _windows(self, phones: np.ndarray) -> Iterator[tuple[int, ...]]:
        width, central = self.tree.width, self.tree.central
        padded = np.concatenate([np.zeros(central, np.int64), phones, np.zeros(width - 1 - central, np.int64)])
        return map(tuple, np.lib.stride_tricks.sliding_window_view(padded, width).tolist())

    def _one_phone(self, window: tuple[int, ...], length: int) -> np.ndarray | None:
        """The `length` transition_ids of a phone, each state's self-loops behind its way out; None where nothing can be repeated."""
        if window not in self._tids:
            self._tids[window] = self._way_through(window)
        onward, loops = self._tids[window]
        spare, can_wait = length - len(onward), np.flatnonzero(loops)
        if spare and not len(can_wait):
            return None
        waits = np.zeros(len(onward), dtype=np.int64)
        if spare:
            waits[can_wait] = spare // len(can_wait)
            waits[can_wait[: spare % len(can_wait)]] += 1
        found = np.repeat(loops, waits + 1)
        found[np.cumsum(waits + 1) - waits - 1] = onward
        return found

    def _way_through(self, window: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """The transition_ids of each state on the shortest way: onward, and of its self-loop (0: none)."""
        phone = window[self.tree.central]
        way, entry = self._ways[phone], self.new.topology.entry(phone)
        onward, loops = [], []
        for state, following in zip(way, [*way[1:], len(entry) - 1], strict=True):
            pdfs = [self.tree.compute(window, c) for c in (entry[state].forward_pdf_class, entry[state].self_loop_pdf_class)]
            number = self.new.tuple2state(phone, state, *pdfs)
            onward.append(self.new.state2first[number] + [to for to, _ in entry[state].transitions].index(following))
            loops.append(self.new.state2self_loop[number])
        return np.array(onward, dtype=np.int32), np.array(loops, dtype=np.int32)
