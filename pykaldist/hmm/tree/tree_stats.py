"""Statistics for a decision tree: the sums of the frames of each state in context of an alignment (Kaldi's acc-tree-stats)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pykaldist.hmm.tree.context import ContextFrames
from pykaldist.hmm.tree.gauss_stats import pack_sums
from pykaldist.hmm.tree.transition_model import TransitionModel

_BLOCK = 1 << 16  # frames at a time, so that their float64 copies stay small


@dataclass(frozen=True)
class TreeStats:
    """The statistics of E events: different states in context.

    `values` (E, width + 1) int32 has the window's phones and, last, the pdf-class, so that a tree's key is a column (the pdf-class has
    key -1). `in_context` (E,) says whether a tree may ask for the phones around the central one. `sums` (E, 1 + 2 D).
    """

    values: np.ndarray
    in_context: np.ndarray
    sums: np.ndarray
    central: int

    @property
    def width(self) -> int:
        return self.values.shape[1] - 1

    def __add__(self, other: TreeStats) -> TreeStats:
        """The statistics of both, whose events stand in the order of their values."""
        values, first, event = np.unique(np.concatenate([self.values, other.values]), axis=0, return_index=True, return_inverse=True)
        sums = np.zeros((len(values), self.sums.shape[1]))
        for one, events in ((self, event[:len(self.values)]), (other, event[len(self.values):])):
            np.add.at(sums, events, one.sums)
        return TreeStats(values, np.concatenate([self.in_context, other.in_context])[first], sums, self.central)

    def part(self, events: np.ndarray) -> TreeStats:
        """A part of the events, given by their numbers or by a mask."""
        return TreeStats(self.values[events], self.in_context[events], self.sums[events], self.central)


def accumulate_tree_stats(feats: np.ndarray, tids: np.ndarray, offsets: np.ndarray, model: TransitionModel, ci_phones: Sequence[int],
                          width: int = 3, central: int = 1) -> TreeStats:
    """Sum up the statistics of `feats` (frames, D) aligned by `tids` (0: not aligned); states of `ci_phones` are modelled without context.
    """
    frames = ContextFrames.of_alignments(tids, offsets, model, width, central)
    order = np.argsort(frames.state, kind="stable")[np.count_nonzero(frames.state < 0):]
    events, dim = len(frames.windows), feats.shape[1]
    x, x2 = np.zeros((events, dim)), np.zeros((events, dim))
    for start in range(0, len(order), _BLOCK):
        rows = order[start:start + _BLOCK]
        block, state = feats[rows].astype(np.float64), frames.state[rows]
        first = np.flatnonzero(np.diff(state, prepend=-1))
        x[state[first]] += np.add.reduceat(block, first)
        x2[state[first]] += np.add.reduceat(block * block, first)
    count = np.bincount(frames.state[order], minlength=events)
    values = np.concatenate([frames.windows, frames.pdf_class(model, central)[:, None]], axis=1)
    return TreeStats(values, ~np.isin(frames.windows[:, central], ci_phones), pack_sums(count, x, x2), central)
