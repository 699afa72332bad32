"""The E-step over a whole corpus: statistics of its blocks, summed.

A corpus of one block (alignments/corpus.py) gives the sums of `Engine.accumulate`, bit for bit. Over several blocks single precision ends
with each block, so that sums differ from those of one pass in the last digits; they depend on the blocks alone, not on who works on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pykaldist.errors import UserError
from pykaldist.hmm.alignments.align import Alignments, AlignOptions, align_block
from pykaldist.hmm.alignments.corpus import Corpus, block_task
from pykaldist.hmm.alignments.graphs import TrainingGraph
from pykaldist.hmm.gmm.aligned_frames import AlignedFrames
from pykaldist.hmm.gmm.engine import Engine
from pykaldist.hmm.gmm.gmm import AmDiagGmm, GmmStats
from pykaldist.hmm.gmm.ubm import UbmStats
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.progress import Progress

NOTHING_ALIGNED = "no utterance could be aligned; check that transcripts and audio belong together."


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
        raise UserError(NOTHING_ALIGNED)
    return found


@block_task()
def _accumulate(part: Corpus, engine: Engine, tids: np.ndarray, *other: np.ndarray, gmm: AmDiagGmm,
                model: TransitionModel) -> CorpusStats | None:
    if not tids.any():
        return None
    frames = AlignedFrames.group(tids, model)
    stats, average = engine.accumulate(gmm, part.feats, frames, *other)
    return CorpusStats(stats, frames.transition_counts, frames.num_frames, average)


def accumulate_ubm(engine: Engine, ubm: AmDiagGmm, corpus: Corpus, tids: np.ndarray, tid_weight: np.ndarray,
                   bar: Progress | None = None) -> UbmStats | None:
    """Sum up the statistics of all frames under a UBM, weighted by their transition_ids; None where no frame has a weight."""
    return corpus.total(_accumulate_ubm, engine, tids, bar=bar, ubm=ubm, tid_weight=tid_weight)


@block_task()
def _accumulate_ubm(part: Corpus, engine: Engine, tids: np.ndarray, ubm: AmDiagGmm, tid_weight: np.ndarray,
                    bar: Progress | None = None) -> UbmStats | None:
    if bar is not None:
        bar.update(len(part))
    return UbmStats.of_frames(ubm, part.feats, tid_weight[tids], engine)


@dataclass
class Realigned:
    """With which try each utterance was aligned (`align_part`), and the statistics along the alignments."""

    tries: np.ndarray
    stats: CorpusStats | None

    def __add__(self, other: Realigned) -> Realigned:
        stats = other.stats if self.stats is None else self.stats if other.stats is None else self.stats + other.stats
        return Realigned(np.concatenate([self.tries, other.tries]), stats)


def align_and_accumulate(engine: Engine, gmm: AmDiagGmm, corpus: Corpus, graphs: Sequence[TrainingGraph], model: TransitionModel,
                         options: AlignOptions, silence_phones: Sequence[int]) -> tuple[Alignments, CorpusStats]:
    """Align all utterances as `align`, and sum up as `accumulate`, in one pass over the corpus."""
    tids = corpus.new_rows(None, np.int32)
    found: Realigned = corpus.total(_align_and_accumulate, engine, graphs, tids, gmm=gmm, model=model, options=options,
                                    boosted=options.with_silence(gmm, model, silence_phones))
    if found.stats is None:
        raise UserError(NOTHING_ALIGNED)
    return Alignments.of_tries(corpus, tids, [found.tries]), found.stats


@block_task(outputs=1)
def _align_and_accumulate(part: Corpus, engine: Engine, graphs: Sequence[TrainingGraph], tids: np.ndarray, gmm: AmDiagGmm,
                          boosted: AmDiagGmm, model: TransitionModel, options: AlignOptions) -> Realigned:
    tries = align_block(part, engine, graphs, tids, boosted, model, options)
    return Realigned(tries, _accumulate(part, engine, tids, gmm=gmm, model=model))
