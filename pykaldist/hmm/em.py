"""The E-step along alignments: statistics of mixtures and transitions, a matrix product for each pdf.

The frames are sorted by pdf, so that all frames of one pdf meet its Gaussians in one product. The sums do not depend on the
number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pykaldist.errors import UserError
from pykaldist.hmm.align import for_each
from pykaldist.hmm.gmm import AmDiagGmm, GmmStats
from pykaldist.hmm.transition_model import TransitionModel


@dataclass
class AlignedFrames:
    """Frames by pdf: those of pdf p are rows `order[bounds[p]:bounds[p + 1]]`; `transition_counts` (float64) by transition_id."""

    order: np.ndarray
    bounds: np.ndarray
    transition_counts: np.ndarray

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

    @property
    def num_frames(self) -> int:
        return int(self.bounds[-1])


def accumulate(gmm: AmDiagGmm, feats: np.ndarray, frames: AlignedFrames, threads: int = 1) -> tuple[GmmStats, float]:
    """Statistics of all frames of `feats` (N, D) that are aligned, and their average log-likelihood."""
    stats, log_likelihoods = gmm.new_stats(), np.zeros(gmm.num_pdfs)

    def one(pdf: int) -> None:
        log_likelihoods[pdf] = gmm.accumulate(stats, pdf, feats[frames.order[frames.bounds[pdf]:frames.bounds[pdf + 1]]])

    for_each(gmm.num_pdfs, one, threads)
    return stats, float(log_likelihoods.sum()) / frames.num_frames


def iterations(name: str, text: str) -> set[int]:
    """The numbers of the iterations that option `name` lists, with spaces between; raises UserError for other text."""
    try:
        return {int(field) for field in text.split()}
    except ValueError as error:
        raise UserError(f"--{name}: expected numbers of iterations, found {text!r}.") from error
