"""Frames grouped by the pdf that they are aligned with, and the counts of transitions: the input of the E-step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pykaldist.errors import UserError
from pykaldist.hmm.tree.transition_model import TransitionModel


@dataclass
class AlignedFrames:
    """Aligned frames, grouped by pdf.

    Frames of pdf p are rows `order[bounds[p]:bounds[p + 1]]`; `transition_counts` (float64) are by transition_id.

    With `weights` (as long as `order`) a frame may stand under several pdfs, each with its posterior.
    """

    order: np.ndarray
    bounds: np.ndarray
    transition_counts: np.ndarray
    weights: np.ndarray | None = None

    @classmethod
    def group(cls, tids: np.ndarray, transition_model: TransitionModel) -> AlignedFrames:
        """Group frames by the pdfs of their transition_ids; frames of transition_id 0 are left out."""
        pdfs = np.where(tids > 0, transition_model.tid2pdf[tids], transition_model.num_pdfs).astype(np.int32)
        order = np.argsort(pdfs, kind="stable")
        bounds = np.searchsorted(pdfs[order], np.arange(transition_model.num_pdfs + 1))
        if bounds[-1] == 0:
            raise UserError("no utterance could be aligned; check that transcripts and audio belong together.")
        counts = np.bincount(tids, minlength=transition_model.num_transition_ids + 1).astype(np.float64)
        counts[0] = 0.0
        return cls(order, bounds, counts)

    @classmethod
    def of_posteriors(cls, frame: np.ndarray, tid: np.ndarray, weight: np.ndarray, transition_model: TransitionModel) -> AlignedFrames:
        """Group frames by posteriors: row `frame[i]` has transition_id `tid[i]` with `weight[i]`.

        Weights of one frame and pdf are added up.
        """
        pairs, index = np.unique(transition_model.tid2pdf[tid].astype(np.int64) * (frame.max(initial=0) + 1) + frame, return_inverse=True)
        pdf, order = np.divmod(pairs, frame.max(initial=0) + 1)
        counts = np.bincount(tid, weight, minlength=transition_model.num_transition_ids + 1)
        return cls(order, np.searchsorted(pdf, np.arange(transition_model.num_pdfs + 1)), counts, np.bincount(index, weight))

    @property
    def num_frames(self) -> int:
        return int(self.bounds[-1])

    @property
    def total_weight(self) -> float:
        """The sum of the frames' weights, each 1 where none are given."""
        return float(self.num_frames if self.weights is None else self.weights.sum())
