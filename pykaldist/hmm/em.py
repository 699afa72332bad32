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
    """Frames by pdf: those of pdf p are rows `order[bounds[p]:bounds[p + 1]]`; `transition_counts` (float64) by transition_id.

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
        """From posteriors: row `frame[i]` has transition_id `tid[i]` with `weight[i]`; weights of one frame and pdf are added up."""
        pairs, index = np.unique(transition_model.tid2pdf[tid].astype(np.int64) * (frame.max(initial=0) + 1) + frame, return_inverse=True)
        pdf, order = np.divmod(pairs, frame.max(initial=0) + 1)
        counts = np.bincount(tid, weight, minlength=transition_model.num_transition_ids + 1)
        return cls(order, np.searchsorted(pdf, np.arange(transition_model.num_pdfs + 1)), counts, np.bincount(index, weight))

    @property
    def num_frames(self) -> int:
        return int(self.bounds[-1])


def accumulate(gmm: AmDiagGmm, feats: np.ndarray, frames: AlignedFrames, threads: int = 1, other: np.ndarray | None = None) -> tuple[
        GmmStats, float]:
    """Statistics of all frames of `feats` (N, D) that are aligned, and their average log-likelihood; the frames count in full.

    With `other` (N, D) the statistics are of these features, divided among the Gaussians as those of `feats` would be.
    """
    stats, log_likelihoods = gmm.new_stats(), np.zeros(gmm.num_pdfs)

    def one(pdf: int) -> None:
        rows = frames.order[frames.bounds[pdf]:frames.bounds[pdf + 1]]
        log_likelihoods[pdf] = gmm.accumulate(stats, pdf, feats[rows], None if other is None else other[rows])

    for_each(gmm.num_pdfs, one, threads)
    return stats, float(log_likelihoods.sum()) / frames.num_frames


def expected_parameters(gmm: AmDiagGmm, feats: np.ndarray, frames: AlignedFrames, threads: int = 1,
                        target: AmDiagGmm | None = None) -> np.ndarray:
    """For each frame the sum over Gaussians of posterior times [mu / sigma^2, 1 / sigma^2]: (N, 2 D) float32, 0 where it is not aligned.

    Posteriors are those of `gmm` within the frame's pdf, times its weight; the parameters are those of `target` if it is given.
    """
    result = np.zeros((len(feats), 2 * gmm.dim), dtype=np.float32)

    def one(pdf: int) -> None:
        part = slice(frames.bounds[pdf], frames.bounds[pdf + 1])
        rows = frames.order[part]
        if len(rows):
            expected = gmm.expected_parameters(pdf, feats[rows], target)
            result[rows] += expected if frames.weights is None else expected * frames.weights[part, None].astype(np.float32)

    for_each(gmm.num_pdfs, one, threads if frames.weights is None else 1)  # frames with weights may be another thread's too
    return result


def iterations(name: str, text: str) -> set[int]:
    """The numbers of the iterations that option `name` lists, with spaces between; raises UserError for other text."""
    try:
        return {int(field) for field in text.split()}
    except ValueError as error:
        raise UserError(f"--{name}: expected numbers of iterations, found {text!r}.") from error
