"""The E-step over a whole corpus: statistics of its blocks, summed.

A corpus of one block (alignments/corpus.py) gives the sums of `Engine.accumulate`, bit for bit. Over several blocks single precision ends
with each block, so that sums differ from those of one pass in the last digits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pykaldist.errors import UserError
from pykaldist.hmm.alignments.corpus import Corpus
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


def accumulate(engine: Engine, gmm: AmDiagGmm, corpus: Corpus, tids: np.ndarray, model: TransitionModel,
               other: np.ndarray | None = None) -> CorpusStats:
    """Sum up the statistics of the frames of `corpus` that `tids` aligns (0: left out).

    With `other` (N, D) the statistics are of these features, as in `Engine.accumulate`. Raises UserError where no frame is aligned.
    """
    found = []
    for part, mine, *others in corpus.parts(tids, *([] if other is None else [other])):
        if mine.any():
            frames = AlignedFrames.group(mine, model)
            stats, average = engine.accumulate(gmm, part.feats, frames, *others)
            found.append(CorpusStats(stats, frames.transition_counts, frames.num_frames, average))
            if len(found) == 2:
                found = [_sum(*found)]
    if not found:
        raise UserError("no utterance could be aligned; check that transcripts and audio belong together.")
    return found[0]


def _sum(one: CorpusStats, two: CorpusStats) -> CorpusStats:
    frames = one.num_frames + two.num_frames
    return CorpusStats(GmmStats(one.gmm.occupancy + two.gmm.occupancy, one.gmm.x + two.gmm.x, one.gmm.x2 + two.gmm.x2),
                       one.transition_counts + two.transition_counts, frames,
                       (one.log_likelihood * one.num_frames + two.log_likelihood * two.num_frames) / frames)
