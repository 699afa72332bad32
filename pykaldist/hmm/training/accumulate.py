"""The E-step over a whole corpus: statistics of its blocks, summed.

A corpus of one block (alignments/corpus.py) gives the sums of `Engine.accumulate`, bit for bit. Over several blocks single precision ends
with each block, so that sums differ from those of one pass in the last digits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pykaldist.errors import UserError
from pykaldist.hmm.alignments.corpus import Corpus, block_task
from pykaldist.hmm.gmm.aligned_frames import AlignedFrames
from pykaldist.hmm.gmm.engine import Engine
from pykaldist.hmm.gmm.gmm import AmDiagGmm, GmmStats
from pykaldist.hmm.tree.transition_model import TransitionModel


@dataclass
class CorpusStats:
    """The statistics of a corpus: of its Gaussians, `transition_counts` by transition_id, and the average log-likelihood of a frame."""

    gmm: GmmStats
    transition_counts: np.ndarray
    num_frames: int
    log_likelihood: float

    def __add__(self, other: CorpusStats) -> CorpusStats:
        frames = self.num_frames + other.num_frames
        return CorpusStats(self.gmm + other.gmm, self.transition_counts + other.transition_counts, frames,
                           (self.log_likelihood * self.num_frames + other.log_likelihood * other.num_frames) / frames)


def accumulate(engine: Engine, gmm: AmDiagGmm, corpus: Corpus, tids: np.ndarray, model: TransitionModel,
               other: np.ndarray | None = None) -> CorpusStats:
    """Sum up the statistics of the frames of `corpus` that `tids` aligns (0: left out).

    With `other` (N, D) the statistics are of these features, as in `Engine.accumulate`. Raises UserError where no frame is aligned.
    """
    found = corpus.total(_accumulate, engine, tids, *([] if other is None else [other]), gmm=gmm, model=model)
    if found is None:
        raise UserError("no utterance could be aligned; check that transcripts and audio belong together.")
    return found


@block_task()
def _accumulate(part: Corpus, engine: Engine, tids: np.ndarray, *other: np.ndarray, gmm: AmDiagGmm,
                model: TransitionModel) -> CorpusStats | None:
    if not tids.any():
        return None
    frames = AlignedFrames.group(tids, model)
    stats, average = engine.accumulate(gmm, part.feats, frames, *other)
    return CorpusStats(stats, frames.transition_counts, frames.num_frames, average)
